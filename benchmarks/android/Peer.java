package bench;

import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * What stands on the phone, in the container and in the machine: takes a jar, and runs methods of it, on Libdroid.
 *
 * <p>`Peer PORT` says `ready` and serves one connection; `Peer -` is served by its own standard input and output. Each
 * request begins with a byte: `J`, then the length of a jar and the jar; `C`, then `package.Class::method`. The reply
 * to either is the nanoseconds that it took here, and what came out, as text.
 */
public final class Peer {
    private static final int JAR_BYTES_MAX = 32 << 20;

    private ClassLoader loader = Peer.class.getClassLoader();

    private Peer() {}

    public static void main(String[] arguments) throws Exception {
        if (System.getProperty("lighterage.libdroid") != null) {
            Method load = Class.forName("lighterage.droid.Main").getDeclaredMethod("load");
            load.setAccessible(true);
            load.invoke(null);
        }
        PrintStream out = System.out;
        // What methods print is no reply.
        System.setOut(System.err);
        if (arguments[0].equals("-")) {
            new Peer().serve(System.in, out);
            return;
        }
        try (ServerSocket listening = new ServerSocket(Integer.parseInt(arguments[0]))) {
            out.println("ready");
            try (Socket peer = listening.accept()) {
                peer.setTcpNoDelay(true);
                new Peer().serve(peer.getInputStream(), peer.getOutputStream());
            }
        }
    }

    private void serve(InputStream from, OutputStream to) throws IOException, ReflectiveOperationException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(from));
        DataOutputStream out = new DataOutputStream(to);
        for (int word = in.read(); word >= 0; word = in.read()) {
            long began = System.nanoTime();
            String said = word == 'J' ? load(in) : call(in.readUTF());
            out.writeLong(System.nanoTime() - began);
            out.writeUTF(said);
            out.flush();
        }
    }

    private String load(DataInputStream in) throws IOException {
        int bytes = in.readInt();
        if (bytes < 0 || bytes > JAR_BYTES_MAX) {
            throw new IOException("a jar of " + bytes + " bytes");
        }
        Path jar = Files.createTempFile("peer", ".jar");
        Files.write(jar, in.readNBytes(bytes));
        loader = new URLClassLoader(new URL[] {jar.toUri().toURL()}, Peer.class.getClassLoader());
        return "";
    }

    private String call(String entry) throws ReflectiveOperationException {
        String[] parts = entry.split("::", 2);
        Method method = Class.forName(parts[0], true, loader).getDeclaredMethod(parts[1]);
        method.setAccessible(true);
        return String.valueOf(method.invoke(null));
    }
}

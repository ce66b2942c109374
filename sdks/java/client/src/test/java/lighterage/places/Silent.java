package lighterage.places;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.util.ArrayList;
import java.util.List;

/** A port at which packets are dropped: whoever waits there to be accepted leaves no room for others. */
public final class Silent implements AutoCloseable {
    private final ServerSocket listening;
    private final List<Socket> waiting = new ArrayList<>();

    /** At this port of 127.0.0.1; 0: any. */
    public Silent(int port) throws IOException {
        InetAddress local = InetAddress.getByName("127.0.0.1");
        listening = new ServerSocket(port, 1, local);
        try {
            for (int turn = 0; turn < 100; turn++) {
                Socket socket = new Socket();
                waiting.add(socket);
                socket.connect(new InetSocketAddress(local, port()), 200);
            }
            throw new IOException("a queue of 1 took 100 connections");
        } catch (SocketTimeoutException full) {
            return;
        }
    }

    public int port() {
        return listening.getLocalPort();
    }

    @Override
    public void close() throws IOException {
        for (Socket socket : waiting) {
            socket.close();
        }
        listening.close();
    }
}

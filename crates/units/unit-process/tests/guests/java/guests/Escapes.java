package guests;

import java.io.IOException;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/** Attempts to reach what a unit must not reach. Each says `held`, or `ESCAPED` and how. */
final class Escapes {
    private Escapes() {}

    static String attempt(String name) throws Exception {
        return switch (name) {
            case "programs" -> programs();
            case "libraries" -> libraries();
            case "files" -> files();
            case "neighbours" -> neighbours();
            case "network" -> network();
            case "processes" -> processes();
            case "scratch" -> scratch();
            case "reflection" -> reflection();
            case "agents" -> agents();
            case "code" -> MachineCode.attempt();
            default -> throw new IllegalArgumentException(name);
        };
    }

    private interface Attempt {
        Object make() throws Exception;
    }

    /** What must fail. */
    private static void mustFail(String what, Attempt attempt) {
        Object made;
        try {
            made = attempt.make();
        } catch (Exception | LinkageError refused) {
            return;
        }
        throw new AssertionError("ESCAPED: " + what + ": " + made);
    }

    /** The only program there is is its own. */
    private static String programs() {
        for (String program : new String[] {"/bin/sh", "/usr/bin/env", "ls", "/proc/self/exe-not"}) {
            mustFail(program, () -> Runtime.getRuntime().exec(new String[] {program}));
        }
        mustFail("a script in scratch", () -> {
            Path script = Files.writeString(Path.of("script"), "#!/bin/sh\nexit 0\n");
            script.toFile().setExecutable(true);
            return Runtime.getRuntime().exec(new String[] {script.toAbsolutePath().toString()});
        });
        return "held";
    }

    private static String libraries() throws IOException {
        Path real = Path.of(System.getProperty("java.home"), "lib/libjava.so");
        Path copy = Files.copy(real, Path.of("libcopy.so"));
        mustFail("a library in scratch", () -> {
            System.load(copy.toAbsolutePath().toString());
            return "loaded";
        });
        mustFail("a library by name", () -> {
            System.loadLibrary("nothing");
            return "loaded";
        });
        return "held";
    }

    private static String files() {
        for (String secret : new String[] {"/etc/shadow", "/root", "/home", "/proc/1/environ", "/sys/kernel"}) {
            mustFail(secret, () -> {
                Path path = Path.of(secret);
                return Files.isDirectory(path) ? Files.newDirectoryStream(path) : Files.readAllBytes(path).length;
            });
        }
        for (String place : new String[] {"/new", "/bundle/app.jar", "/tmp/new", "/dev/new", "/proc/self/comm"}) {
            mustFail(place, () -> Files.writeString(Path.of(place), "x"));
        }
        // The base: Java itself, and the unit half beside it, which every unit would run.
        Path home = Path.of(System.getProperty("java.home"));
        Path unit = home.resolveSibling("unit.jar");
        for (Path part : new Path[] {unit, home.resolve("lib/modules"), home.resolve("new")}) {
            mustFail(part.toString(), () -> Files.writeString(part, "x"));
        }
        return "held";
    }

    /** The scratch folders of other units of the same function. */
    private static String neighbours() {
        String own = Path.of("").toAbsolutePath().getFileName().toString();
        for (int slot = 0; slot < 8; slot++) {
            Path other = Path.of("/scratch", String.valueOf(slot));
            if (!own.equals(String.valueOf(slot))) {
                mustFail("listing " + other, () -> {
                    try (DirectoryStream<Path> names = Files.newDirectoryStream(other)) {
                        return names.iterator().hasNext();
                    }
                });
                mustFail("writing to " + other, () -> Files.writeString(other.resolve("x"), "x"));
            }
        }
        return "held";
    }

    private static String network() {
        mustFail("connecting", () -> new Socket("127.0.0.1", 80));
        mustFail("listening", () -> new ServerSocket(0));
        return "held";
    }

    /** Its own process is all that it can see or end. */
    private static String processes() throws InterruptedException {
        long own = ProcessHandle.current().pid();
        long ended = ProcessHandle.allProcesses()
                .filter(process -> process.pid() != own)
                .filter(ProcessHandle::destroyForcibly)
                .count();
        mustFail("ending the keeper", () -> ProcessHandle.of(1).orElseThrow().destroyForcibly() ? "ended" : fail());
        TimeUnit.MILLISECONDS.sleep(50);
        return ended == 0 ? "held" : "ESCAPED: it has ended " + ended;
    }

    private static String fail() throws IOException {
        throw new IOException("it does not end");
    }

    /** What Java keeps to itself stays so: the loader of classes, and the fields that say who may do what. */
    private static String reflection() {
        mustFail("a field of the loader", () -> {
            var field = ClassLoader.class.getDeclaredField("classes");
            field.setAccessible(true);
            return field.get(Escapes.class.getClassLoader());
        });
        mustFail("a class of Java's own package", () -> {
            var define = ClassLoader.class.getDeclaredMethod("defineClass", byte[].class, int.class, int.class);
            define.setAccessible(true);
            return define;
        });
        mustFail("another class in the unit half's place", () -> {
            // Of the loader that has Java's own classes, and looks into no bundle.
            ClassLoader loader = Class.forName("lighterage.unit.Main").getClassLoader();
            return loader == null ? fail() : loader;
        });
        return "held";
    }

    /** Nothing can be attached to a virtual machine, and no agent be loaded into this one. */
    private static String agents() {
        mustFail("attaching", () -> Class.forName("com.sun.tools.attach.VirtualMachine"));
        mustFail("an agent", () -> Class.forName("java.lang.instrument.Instrumentation"));
        mustFail("management", () -> Class.forName("java.lang.management.ManagementFactory"));
        return "held";
    }

    private static String scratch() throws IOException {
        Path file = Path.of("file");
        try (DirectoryStream<Path> names = Files.newDirectoryStream(Path.of(""))) {
            if (names.iterator().hasNext()) {
                return "ESCAPED: the folder is not empty";
            }
        }
        byte[] block = new byte[1 << 20];
        int written = 0;
        try (var out = Files.newOutputStream(file)) {
            for (; written < 64; written++) {
                out.write(block);
            }
        } catch (IOException full) {
            Files.createDirectories(Path.of("a/b/c/d"));
            return "held: " + written + " MiB";
        }
        return "ESCAPED: " + written + " MiB were written";
    }
}

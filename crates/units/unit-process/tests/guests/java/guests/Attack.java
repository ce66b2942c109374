package guests;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.zip.CRC32;
import lighterage.unit.Config;
import lighterage.unit.Denied;
import lighterage.unit.Event;
import lighterage.unit.Fatal;
import lighterage.unit.Invalid;
import lighterage.unit.Log;
import lighterage.unit.Malformed;
import lighterage.unit.Outgoing;
import lighterage.unit.Queue;
import lighterage.unit.Random;
import lighterage.unit.Retry;
import lighterage.unit.Store;
import lighterage.unit.Unavailable;

/** Misbehaves as its data says: `WORD` or `WORD NUMBER`. The words are those of `guests/attack`, and some more. */
public final class Attack {
    /** The queue it pushes to and pops from. */
    private static final String OUT = "attacked";

    private static int calls;

    public static Object handle(Event event) throws Exception {
        String[] parts = event.text().split(" ", 2);
        String rest = parts.length > 1 ? parts[1] : "";
        Integer number = rest.matches("\\d+") ? Integer.valueOf(rest) : null;
        try {
            return word(parts[0], number, rest);
        } catch (Denied | Malformed error) {
            throw new Fatal(error.getMessage());
        } catch (Unavailable error) {
            throw new Retry(error.getMessage());
        }
    }

    private static Object word(String word, Integer number, String rest) throws Exception {
        return switch (word) {
            case "loop" -> spin();
            case "recurse" -> String.valueOf(deeper(1));
            case "memory" -> exhaustMemory();
            case "direct-memory" -> exhaustDirectMemory();
            case "log-flood" -> floodLog(number == null ? Integer.MAX_VALUE : number);
            case "print-flood" -> floodOutput(number == null ? Long.MAX_VALUE : number);
            case "panic" -> throw new IllegalStateException("asked to panic");
            case "unreachable" -> abort();
            case "out-of-bounds" -> read_out_of_bounds();
            case "big-reply" -> new byte[number == null ? 64 << 20 : number];
            case "random-huge" -> Random.bytes(number == null ? 1 << 30 : number);
            case "clock-loop" -> hostLoop();
            case "remember" -> String.valueOf(++calls);
            case "store-set" -> write("written");
            case "store-set-then-trap" -> write("must never be seen") + abort();
            case "invalid" -> throw new Invalid("asked to be invalid");
            case "retry" -> throw new Retry("asked to be retried");
            case "fatal" -> throw new Fatal("asked to be fatal");
            case "count" -> String.valueOf(Store.increment("attack", "count", 1));
            case "push" -> push(number);
            case "push-then-trap" -> push(number) + abort();
            case "push-then-retry" -> {
                push(number);
                throw new Retry("asked to be retried");
            }
            case "push-big" -> {
                Queue.push(OUT, about(new Outgoing("x".repeat(number == null ? 16 << 20 : number))));
                yield "";
            }
            case "pop" -> pop();
            case "pop-then-trap" -> pop() + abort();
            case "exit" -> exit();
            case "exit-hard" -> halt();
            case "garble" -> garble();
            case "announce" -> announce();
            case "strange" -> throw new Strange();
            case "stays" -> stays();
            case "threads" -> threads();
            case "classes" -> classes();
            case "unsafe" -> unsafe();
            case "finalizers" -> finalizers();
            case "escape" -> Escapes.attempt(rest);
            default -> throw new Invalid("the data is no word of this function");
        };
    }

    private static Object spin() {
        int turns = 0;
        while (true) {
            turns++;
        }
    }

    private static int deeper(int depth) {
        return deeper(depth + 1) + depth;
    }

    private static Object exhaustMemory() {
        List<byte[]> taken = new ArrayList<>();
        while (true) {
            taken.add(new byte[1 << 20]);
        }
    }

    private static Object exhaustDirectMemory() {
        List<ByteBuffer> taken = new ArrayList<>();
        while (true) {
            taken.add(ByteBuffer.allocateDirect(1 << 20).putLong(0, 1));
        }
    }

    private static Object floodLog(int lines) {
        for (int line = 0; line < lines; line++) {
            Log.info("line " + line + " of a flood " + "x".repeat(200));
        }
        return "";
    }

    private static Object floodOutput(long count) {
        String block = "x".repeat(1_023);
        for (long written = 0; written + 1_024 <= count; written += 1_024) {
            System.out.println(block);
        }
        return "all written";
    }

    private static String abort() {
        throw new AssertionError("asked to abort");
    }

    private static Object read_out_of_bounds() {
        int[] numbers = new int[4];
        return numbers[calls + 4];
    }

    private static Object hostLoop() {
        while (true) {
            Config.get("nothing");
        }
    }

    private static String write(String value) {
        Store.set("attack", "key", value);
        return value;
    }

    private static String push(Integer count) {
        write("pushed");
        List<Outgoing> events = new ArrayList<>();
        for (int number = 1; number <= (count == null ? 1 : count); number++) {
            events.add(about(new Outgoing(String.valueOf(number))));
        }
        if (!events.isEmpty()) {
            Queue.push(OUT, events.remove(0));
        }
        Queue.pushAll(OUT, events);
        return "pushed";
    }

    private static Outgoing about(Outgoing event) {
        event.type("attack.pushed").subject("attack").contentType("text/plain");
        return event.attribute("partitionkey", "a");
    }

    private static String pop() {
        Event event = Queue.pop(OUT);
        return event == null ? "nothing" : event.text();
    }

    private static Object exit() {
        System.exit(3);
        return "unheard";
    }

    private static Object halt() {
        Runtime.getRuntime().halt(3);
        return "unheard";
    }

    private static Object garble() throws Exception {
        String words = "HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n".repeat(10);
        new FileOutputStream(FileDescriptor.in).write(words.getBytes(StandardCharsets.US_ASCII));
        return "unheard";
    }

    /** A frame whose header is right, and announces 2^62 bytes. */
    private static Object announce() throws Exception {
        ByteBuffer head = ByteBuffer.allocate(64).order(ByteOrder.LITTLE_ENDIAN);
        head.put(new byte[] {(byte) 0x8C, 'L', 'F', 'R', 1, 2, 0, 0}).putLong(1L << 62).putLong(1).putInt(1);
        CRC32 checksum = new CRC32();
        checksum.update(head.array(), 0, 60);
        head.putInt(60, (int) checksum.getValue());
        new FileOutputStream(FileDescriptor.in).write(head.array());
        return "unheard";
    }

    /** An exception that never says what it is. */
    private static final class Strange extends RuntimeException {
        private static final long serialVersionUID = 1;

        @Override
        public String getMessage() {
            return spin().toString();
        }

        @Override
        public String toString() {
            return getMessage();
        }
    }

    /** Leaves a thread that works on, and would keep any other program from ending. */
    private static Object stays() {
        new Thread(Attack::spin).start();
        return "left";
    }

    private static Object threads() throws Exception {
        for (int thread = 0; thread < 10_000; thread++) {
            Thread waits = new Thread(() -> {
                synchronized (OUT) {
                    try {
                        OUT.wait();
                    } catch (InterruptedException ended) {
                        Thread.currentThread().interrupt();
                    }
                }
            });
            waits.setDaemon(true);
            waits.start();
        }
        return "as many as it likes";
    }

    /** 100,000 classes, none of which goes. */
    private static Object classes() throws Exception {
        byte[] code;
        try (var in = Attack.class.getResourceAsStream("Hello.class")) {
            code = in.readAllBytes();
        }
        List<Class<?>> kept = new ArrayList<>();
        for (int number = 0; number < 100_000; number++) {
            kept.add(java.lang.invoke.MethodHandles.lookup().defineHiddenClass(code, false).lookupClass());
        }
        return kept.size() + " classes";
    }

    /** Reads from an address at which nothing is. */
    private static Object unsafe() throws Exception {
        Class<?> kind = Class.forName("sun.misc.Unsafe");
        var field = kind.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        return kind.getMethod("getLong", long.class).invoke(field.get(null), 8L);
    }

    /** Leaves an object that never ends to be finalized, and waits until it is. */
    private static Object finalizers() throws Exception {
        for (int number = 0; number < 10; number++) {
            new Finalized();
        }
        while (!Finalized.hasBegun) {
            System.gc();
            Thread.sleep(5);
        }
        Thread.sleep(Long.MAX_VALUE);
        return "unheard";
    }

    private static final class Finalized {
        private static volatile boolean hasBegun;

        @Override
        @SuppressWarnings({"deprecation", "removal"})
        protected void finalize() {
            hasBegun = true;
            spin();
        }
    }
}

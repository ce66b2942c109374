package lighterage.unit;

import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import lighterage.frame.Buffer;
import lighterage.frame.Frame;
import lighterage.frame.FrameException;
import lighterage.frame.Limits;

/**
 * The unit's end of the socket: frames, one after another.
 *
 * <pre>
 *   host ── call ──▶ unit                        the work
 *   unit ── call ──▶ host ── reply ──▶ unit      what it asks meanwhile
 *   unit ── reply or failure ──▶ host            the work's end
 * </pre>
 */
final class Link {
    /** The host is trusted to keep to the function's own limits. */
    private static final Limits LIMITS = new Limits(1L << 40, 64 << 20, 1 << 16, 128, 1 << 20);
    private static final int SMALL_BYTES = 8 << 10;
    private static final int CARRIED_BYTES_MAX = 64 << 10;
    /** Id of the first question; those below are the node's. */
    private static final long FIRST_QUESTION = 2;

    private static Link current;

    private final InputStream in;
    private final OutputStream out;
    private byte[] room = new byte[SMALL_BYTES];
    private int have;
    private long asked = FIRST_QUESTION;

    Link(InputStream in, OutputStream out) {
        this.in = in;
        this.out = out;
    }

    /** The socket a unit is born with. */
    static Link inherited() {
        current = new Link(new FileInputStream(FileDescriptor.in), new FileOutputStream(FileDescriptor.in));
        return current;
    }

    static Link current() {
        if (current == null) {
            throw new IllegalStateException("this is no unit: lighterage.unit works only in code that a node runs");
        }
        return current;
    }

    /** The next frame. Ends this process when the host is gone: nobody waits for it any more. */
    Frame receive() throws IOException, FrameException {
        fill(Frame.HEADER_BYTES);
        int total = Math.toIntExact(Frame.totalBytes(ByteBuffer.wrap(room, 0, have), LIMITS));
        if (total > room.length) {
            room = Arrays.copyOf(room, total);
        }
        fill(total);
        byte[] frame = room;
        int more = have - total;
        room = new byte[Math.max(SMALL_BYTES, more)];
        System.arraycopy(frame, total, room, 0, more);
        have = more;
        return Frame.decode(ByteBuffer.wrap(frame, 0, total).slice(), LIMITS);
    }

    private void fill(int total) throws IOException {
        while (have < total) {
            int got = in.read(room, have, room.length - have);
            if (got < 0) {
                Runtime.getRuntime().halt(0);
            }
            have += got;
        }
    }

    /** Waits for the host to end this process, which it does once it has the reply. */
    void waitForEnd() throws IOException {
        while (in.read(room) >= 0) {
            have = 0;
        }
    }

    void send(Frame frame) throws IOException {
        ByteBuffer bytes = frame.encode(false);
        out.write(bytes.array(), 0, bytes.limit());
    }

    /** Asks the host, and waits for its answer. */
    synchronized Object ask(String verb, Object... arguments) {
        asked++;
        try {
            send(new Frame(Frame.CALL, asked, question(verb, arguments)));
            Frame answer = receive();
            if (answer.id() != asked) {
                throw new Unavailable("the host answered another question");
            }
            if (answer.kind() == Frame.FAILURE) {
                Map<String, Object> failure = Event.fields(answer.body());
                throw Refused.of(Event.text(failure.get("kind")), Event.text(failure.get("message")));
            }
            return answer.body() instanceof Buffer buffer ? buffer.copy() : answer.body();
        } catch (IOException | FrameException broken) {
            throw new Unavailable("the host's answer cannot be read: " + broken.getMessage());
        }
    }

    /** Tells the host what it does not answer. */
    synchronized void tell(String verb, Object... arguments) {
        try {
            send(new Frame(Frame.CALL, 0, question(verb, arguments)));
        } catch (IOException gone) {
            Runtime.getRuntime().halt(0);
        }
    }

    private static Map<String, Object> question(String verb, Object... arguments) {
        Map<String, Object> question = new LinkedHashMap<>();
        question.put("op", verb);
        question.put("args", Arrays.asList(arguments));
        return question;
    }

    /** Small bytes travel among the other values, large ones beside them. */
    static Object carried(byte[] bytes) {
        return bytes.length <= CARRIED_BYTES_MAX ? bytes : new Buffer(bytes);
    }

    /** What an answer must be that the host gives. */
    static <T> T expect(Class<T> kind, Object answer) {
        if (answer == null || kind.isInstance(answer)) {
            return kind.cast(answer);
        }
        throw new Unavailable("the host's answer is of another type");
    }

    static List<?> list(Object answer) {
        return expect(List.class, answer);
    }
}

package lighterage.unit;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import lighterage.frame.Buffer;
import lighterage.frame.Frame;
import lighterage.frame.FrameException;
import lighterage.frame.Limits;

/**
 * Runs what a call runs, with methods of its own in the place of a function's.
 *
 * <p>When a base is made, all of it: the classes that it loads are in the archive from which units start. And in every
 * unit before its function is loaded, the kind of call that will come: what is done for the first time takes
 * milliseconds, and no call should wait for that.
 */
final class Rehearsal {
    private Rehearsal() {}

    /** All kinds of calls, and what goes wrong with them. */
    public static void main(String[] arguments) throws IOException, FrameException, ReflectiveOperationException {
        Class.forName(Main.class.getName());
        call(false);
        call(true);
        work(false, "handle", event("data"));
        work(false, "fail", event("data"));
        work(false, "values", event("[1, 2.5, \"text\", [1, 2], {\"name\": null}, true]"));
        work(false, "values", event("not JSON"));
        new Outgoing("data").attribute("name", "value").fields();
        Thrown.fields(new IllegalStateException("rehearsed"), 1);
    }

    /** A call with arguments in a frame, or in the JSON of an event. */
    static void call(boolean isCall) throws IOException, FrameException, ReflectiveOperationException {
        if (isCall) {
            byte[] call = new Frame(Frame.CALL, 1, Map.of("args", List.of(1L, 2L))).encode(false).array();
            work(true, "sum", Map.of("data", new Buffer(call)));
        } else {
            work(false, "same", event("[7]"));
            work(false, "same", event("7"));
        }
    }

    private static Map<String, Object> event(String data) {
        Map<String, Object> event = new LinkedHashMap<>();
        event.put("id", "1");
        event.put("source", "/");
        event.put("type", "rehearsal");
        event.put("subject", "rehearsal");
        event.put("content-type", "text/plain");
        event.put("time-ms", 0);
        event.put("attributes", List.of(List.of("name", "value")));
        event.put("attempt", 1);
        event.put("data", new Buffer(data.getBytes(StandardCharsets.UTF_8)));
        return event;
    }

    private static void work(boolean isCall, String name, Object body)
            throws IOException, FrameException, ReflectiveOperationException {
        byte[] frame = new Frame(Frame.CALL, 1, body).encode(false).array();
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        Link link = new Link(new ByteArrayInputStream(frame), out);
        new Work(isCall, "lighterage.unit.Rehearsal::" + name).serve(link, 1);
        Frame.decode(ByteBuffer.wrap(out.toByteArray()), Limits.DEFAULT);
    }

    static String handle(Event event) {
        return event.text() + event.attribute("name");
    }

    static byte[] fail(Event event) {
        throw new Invalid("rehearsed");
    }

    static Object values(int number, double half, String text, int[] numbers, Map<String, Object> map, boolean truth) {
        return List.of(number, half, text, numbers, map, truth);
    }

    static int same(int number) {
        return number;
    }

    static long sum(long one, long two) {
        return one + two;
    }
}

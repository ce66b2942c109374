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

/** Runs what every unit runs: the classes that it loads are in the archive from which units start. */
final class Rehearsal {
    private Rehearsal() {}

    public static void main(String[] arguments) throws IOException, FrameException, ReflectiveOperationException {
        Map<String, Object> event = new LinkedHashMap<>();
        event.put("id", "1");
        event.put("source", "/");
        event.put("type", "rehearsal");
        event.put("time-ms", 0);
        event.put("attributes", List.of(List.of("name", "value")));
        event.put("attempt", 1);
        event.put("data", new Buffer("data".getBytes(StandardCharsets.UTF_8)));
        work(false, "handle", event);
        work(false, "fail", event);
        for (String json : List.of("[1, 2.5, \"text\", [1, 2], {\"name\": null}, true]", "not JSON")) {
            event.put("data", new Buffer(json.getBytes(StandardCharsets.UTF_8)));
            work(false, "call", event);
        }
        byte[] call = new Frame(Frame.CALL, 1, Map.of("args", List.of(1L, 2L))).encode(false).array();
        work(true, "sum", Map.of("data", new Buffer(call)));
        new Outgoing("data").attribute("name", "value").fields();
        Thrown.fields(new IllegalStateException("rehearsed"), 1);
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

    static Object call(int number, double half, String text, int[] numbers, Map<String, Object> map, boolean truth) {
        return List.of(number, half, text, numbers, map, truth);
    }

    static long sum(long one, long two) {
        return one + two;
    }
}

package lighterage.unit;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import lighterage.frame.Buffer;
import lighterage.frame.Frame;
import lighterage.frame.FrameException;
import lighterage.frame.Limits;
import lighterage.json.Json;

/** JSON, and objects made of it: each line of the tables is a claim. */
public final class ValuesTest {
    private static int failed;

    enum Colour {
        RED,
        BLUE
    }

    record Point(int x, double y, List<Long> more) {}

    static class Above {
        private int number = 7;
    }

    static final class Bean extends Above {
        String name;
        Colour colour;
        transient byte[] bytes;
    }

    public static void main(String[] arguments) {
        for (String text : List.of("null", "true", "[1,-2,0.5]", "{\"a\":{\"b\":[]},\"c\":\"\\\"\\\\é\\n\"}", "\"\\u0001\"")) {
            is(text, () -> Json.write(Json.read(" " + text + "\n")));
        }
        is("123456789012345678901234567890", () -> Json.write(Json.read("123456789012345678901234567890")));
        is("-" + "7".repeat(4_300), () -> Json.write(Json.read("-" + "7".repeat(4_300))));
        // To make a number of so many digits takes time that grows with their square.
        is("IllegalArgumentException", () -> Json.write(Json.read("7".repeat(4_301))));
        is("9223372036854775807", () -> Json.write(Json.read("9223372036854775807")));
        for (String text : List.of("", "01", "1.", "[1,]", "{\"a\":1,\"a\":2}", "\"\n\"", "\"\\x\"", "1 2", "nul", "[", "-")) {
            is("IllegalArgumentException", () -> Json.write(Json.read(text)));
        }
        is("IllegalArgumentException", () -> Json.write(Json.read("[".repeat(100_000))));
        is("{\"x\":1,\"y\":2.0,\"more\":[3,4]}", () -> again("{\"x\": 1, \"y\": 2, \"more\": [3, 4]}", Point.class));
        is("{\"name\":\"a\",\"colour\":\"BLUE\",\"bytes\":\"AQI=\",\"number\":9}", () ->
                again("{\"number\": 9, \"name\": \"a\", \"colour\": \"BLUE\", \"bytes\": \"AQI=\"}", Bean.class));
        is("{\"name\":null,\"colour\":null,\"bytes\":null,\"number\":7}", () -> again("{}", Bean.class));
        is("[[1],[2,3]]", () -> again("[[1], [2, 3]]", int[][].class));
        is("[1.0,null]", () -> again("[1, null]", Double[].class));
        for (String wrong : List.of("{\"x\": 1}", "{\"x\": 1.5, \"y\": 2, \"more\": []}", "{\"x\": 1, \"y\": 2, \"more\": [], \"z\": 1}", "7")) {
            is("IllegalArgumentException", () -> again(wrong, Point.class));
        }
        is("IllegalArgumentException", () -> again("{\"colour\": \"GREEN\"}", Bean.class));
        is("IllegalArgumentException", () -> again("3000000000", int.class));
        is("IllegalArgumentException", () -> again("null", int.class));
        is("IllegalArgumentException", () -> again("-2147483649", int.class));
        is("IllegalArgumentException", () -> again("9223372036854775808", long.class));
        is("-9223372036854775808", () -> again("-9223372036854775808", long.class));
        is("-2147483648", () -> again("-2147483648", int.class));
        is("7", () -> again("7.0", int.class));
        is("{\"a\":[{\"x\":1,\"y\":2.0,\"more\":null}]}", () ->
                Json.write(Values.lower(Values.lift(Json.read("{\"a\": [{\"x\": 1, \"y\": 2, \"more\": null}]}"), points()), false)));
        List<Object> itself = new ArrayList<>();
        itself.add(itself);
        is("IllegalArgumentException", () -> Json.write(Values.lower(itself, false)));
        is("[\"RED\",\"x\",null]", () -> Json.write(Values.lower(List.of(Colour.RED, 'x', Double.NaN), false)));
        double[] numbers = {1, 2};
        is("2.0", () -> ((double[]) Values.lift(Values.lower(numbers, true), double[].class))[1] + "");
        is("IllegalArgumentException", () -> Values.lift(Values.lower(numbers, true), int[].class) + "");
        // As many values as the client writes, and a word where a result holds more than it reads.
        is("2000000", () -> called("counted", Collections.nCopies(2_000_000, true)));
        is("true", () -> called("repeated", 1_999_999L).endsWith("true]") + "");
        is("true", () -> called("repeated", 8_000_001L).contains("more than 8000000 others") + "");
        System.out.println(failed == 0 ? "values: ok" : failed + " claims about values do not hold");
        System.exit(failed == 0 ? 0 : 1);
    }

    static int counted(List<?> items) {
        return items.size();
    }

    static List<Boolean> repeated(int times) {
        return Collections.nCopies(times, true);
    }

    /** The result of a method with the contract `call`; where it failed, why. */
    private static String called(String method, Object argument) {
        Map<String, Object> event = new LinkedHashMap<>();
        event.put("type", "call");
        byte[] call = new Frame(Frame.CALL, 0, Map.of("args", List.of(argument))).encode(false).array();
        event.put("data", new Buffer(call));
        byte[] work = new Frame(Frame.CALL, 1, event).encode(false).array();
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        PrintStream log = System.err;
        System.setErr(new PrintStream(OutputStream.nullOutputStream()));
        try {
            Link link = new Link(new ByteArrayInputStream(work), out);
            new Work(true, "lighterage.unit.ValuesTest::" + method).serve(link, 1);
            Map<String, Object> said = Event.fields(read(out.toByteArray()));
            return said.containsKey("data") ? read(Event.bytes(said.get("data"))).toString() : said.get("message") + "";
        } catch (ReflectiveOperationException | IOException | FrameException broken) {
            throw new IllegalStateException(broken);
        } finally {
            System.setErr(log);
        }
    }

    private static Object read(byte[] frame) throws FrameException {
        return Frame.decode(ByteBuffer.wrap(frame), Limits.CALL).body();
    }

    static void takes(Map<String, List<Point>> points, Set<String> names) {}

    private static Type points() {
        for (Method method : ValuesTest.class.getDeclaredMethods()) {
            if (method.getName().equals("takes")) {
                return method.getGenericParameterTypes()[0];
            }
        }
        throw new AssertionError();
    }

    private static String again(String json, Class<?> kind) {
        return Json.write(Values.lower(Values.lift(Json.read(json), kind), false));
    }

    private interface Made {
        String make();
    }

    private static void is(String wanted, Made made) {
        String found;
        try {
            found = made.make();
        } catch (RuntimeException error) {
            found = error.getClass().getSimpleName();
        }
        if (!found.equals(wanted)) {
            System.out.println(found + ", and not " + wanted);
            failed++;
        }
    }

    private ValuesTest() {}
}

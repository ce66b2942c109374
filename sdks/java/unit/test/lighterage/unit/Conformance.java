package lighterage.unit;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import lighterage.frame.Array;
import lighterage.frame.Buffer;
import lighterage.frame.Frame;
import lighterage.frame.FrameException;
import lighterage.frame.Limits;
import lighterage.frame.Tagged;
import lighterage.json.Json;

/** Goes through all cases of `contracts/conformance/frame`, the folder of the first argument. */
public final class Conformance {
    private static final Map<String, Integer> KINDS =
            Map.of("call", Frame.CALL, "reply", Frame.REPLY, "failure", Frame.FAILURE, "event", Frame.EVENT);

    public static void main(String[] arguments) throws IOException {
        TreeSet<Path> cases = new TreeSet<>();
        try (DirectoryStream<Path> folders = Files.newDirectoryStream(Path.of(arguments[0]), Files::isDirectory)) {
            folders.forEach(cases::add);
        }
        int failed = 0;
        for (Path one : cases) {
            String wrong = check(one);
            if (wrong != null) {
                System.out.println(one.getFileName() + ": " + wrong);
                failed++;
            }
        }
        System.out.println(cases.size() + " cases of frames, " + failed + " failed");
        System.exit(failed == 0 && cases.size() > 90 ? 0 : 1);
    }

    /** What is wrong; null if nothing is. */
    @SuppressWarnings("unchecked")
    private static String check(Path folder) throws IOException {
        Map<String, Object> one = (Map<String, Object>) Json.read(Files.readString(folder.resolve("case.json")));
        byte[] bytes = hex(Files.readString(folder.resolve("frame.hex")).replaceAll("\\s", ""));
        Frame frame;
        try {
            frame = Frame.decode(ByteBuffer.wrap(bytes), limits((Map<String, Object>) one.get("limits")));
            record(frame, (String) one.get("record"));
        } catch (FrameException error) {
            Object wanted = one.get("error");
            return error.word.equals(wanted) ? null : "it says " + error.word + ", and not " + wanted;
        }
        if (one.containsKey("error")) {
            return "it is read, and has to say " + one.get("error");
        }
        Object body = body(one.get("body"));
        long id = Long.parseUnsignedLong((String) one.get("id"));
        if (frame.kind() != KINDS.get(one.get("kind")) || frame.id() != id) {
            return "it has another kind or id";
        }
        boolean bulk = one.get("checksum").equals("all");
        byte[] written = new Frame(frame.kind(), id, body).encode(bulk).array();
        byte[] again = frame.encode(bulk).array();
        if (!java.util.Arrays.equals(written, again)) {
            return "what is read is not what it says";
        }
        boolean isSame = java.util.Arrays.equals(written, bytes);
        return isSame || one.get("written").equals(false) ? null : "it is written differently";
    }

    private static void record(Frame frame, String record) throws FrameException {
        if ("event".equals(record)) {
            Event.in(frame, frame.kind() == Frame.CALL ? Frame.CALL : Frame.EVENT);
        } else if ("failure".equals(record)) {
            Map<String, Object> fields = Event.fields(frame.body());
            Event.text(fields.get("message"));
            if (!List.of("invalid", "retry", "fatal").contains(Event.text(fields.get("kind")))) {
                throw Event.wrong();
            }
        }
    }

    private static Limits limits(Map<String, Object> given) {
        Limits usual = Limits.DEFAULT;
        Map<String, Object> limits = given == null ? Map.of() : given;
        return new Limits(
                limit(limits.get("total-bytes"), usual.totalBytes()),
                limit(limits.get("meta-bytes"), usual.metaBytes()),
                limit(limits.get("buffers"), usual.buffers()),
                (int) limit(limits.get("depth"), usual.depth()),
                limit(limits.get("values"), usual.values()));
    }

    private static long limit(Object given, long usual) {
        return given == null ? usual : Long.parseUnsignedLong(given.toString());
    }

    private static Object body(Object said) {
        if (said instanceof List<?> items) {
            List<Object> list = new ArrayList<>();
            items.forEach(item -> list.add(body(item)));
            return list;
        }
        if (!(said instanceof Map<?, ?> map)) {
            return said;
        }
        Object value = map.values().iterator().next();
        return switch ((String) map.keySet().iterator().next()) {
            case "i64" -> Long.valueOf((String) value);
            case "f64" -> Double.longBitsToDouble(Long.parseUnsignedLong((String) value, 16));
            case "bytes" -> hex((String) value);
            case "buffer" -> new Buffer(hex((String) value));
            case "tagged" -> new Tagged((String) ((List<?>) value).get(0), body(((List<?>) value).get(1)));
            case "map" -> {
                Map<String, Object> entries = new LinkedHashMap<>();
                for (Object entry : (List<?>) value) {
                    entries.put((String) ((List<?>) entry).get(0), body(((List<?>) entry).get(1)));
                }
                yield entries;
            }
            default -> array((Map<?, ?>) value);
        };
    }

    private static Array array(Map<?, ?> said) {
        List<?> axes = (List<?>) said.get("shape");
        long[] shape = axes.stream().mapToLong(axis -> Long.parseLong((String) axis)).toArray();
        return new Array(
                ((String) said.get("class")).charAt(0),
                ((String) said.get("byte-order")).charAt(0),
                ((String) said.get("layout")).charAt(0),
                ((Long) said.get("item-bytes")).intValue(),
                shape,
                (String) said.get("unit"),
                ByteBuffer.wrap(hex((String) said.get("data"))));
    }

    private static byte[] hex(String digits) {
        return HexFormat.of().parseHex(digits);
    }

    private Conformance() {}
}

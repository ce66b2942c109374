package lighterage.unit;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import lighterage.frame.Buffer;
import lighterage.frame.Frame;
import lighterage.frame.FrameException;

/**
 * Something that happened: a CloudEvents 1.0 record.
 *
 * <p>`subject` and `contentType` are null where there are none. `attributes` are the extension attributes in the order
 * they arrived.
 */
public record Event(
        String id,
        String source,
        String type,
        String subject,
        long timeMs,
        String contentType,
        List<Attribute> attributes,
        long attempt,
        byte[] data) {
    private static final int ATTRIBUTES_MAX = 128;
    private static final long ATTEMPT_MAX = 0xFFFF_FFFFL;

    /** An extension attribute, or a header of HTTP. */
    public record Attribute(String name, String value) {}

    /** The data as text; what is no UTF-8 in it is replaced. */
    public String text() {
        return new String(data, StandardCharsets.UTF_8);
    }

    /** The value of an extension attribute; null if there is none. */
    public String attribute(String name) {
        for (Attribute attribute : attributes) {
            if (attribute.name().equals(name)) {
                return attribute.value();
            }
        }
        return null;
    }

    /** The event in a frame of this kind. */
    static Event in(Frame frame, int kind) throws FrameException {
        if (frame.kind() != kind) {
            throw new FrameException("record-kind");
        }
        return of(frame.body());
    }

    /** The event that a frame's body is. */
    static Event of(Object body) throws FrameException {
        String id = "";
        String source = "";
        String type = null;
        String subject = null;
        String contentType = null;
        long timeMs = 0;
        long attempt = 1;
        byte[] data = {};
        List<Attribute> attributes = List.of();
        for (Map.Entry<String, Object> entry : fields(body).entrySet()) {
            Object value = entry.getValue();
            switch (entry.getKey()) {
                case "id" -> id = text(value);
                case "source" -> source = text(value);
                case "type" -> type = text(value);
                case "subject" -> subject = text(value);
                case "content-type" -> contentType = text(value);
                case "time-ms" -> timeMs = number(value, Long.MAX_VALUE);
                case "attempt" -> attempt = number(value, ATTEMPT_MAX);
                case "attributes" -> attributes = attributes(value);
                case "data" -> data = bytes(value);
                default -> throw wrong();
            }
        }
        if (type == null) {
            throw wrong();
        }
        return new Event(id, source, type, subject, timeMs, contentType, attributes, attempt, data);
    }

    @SuppressWarnings("unchecked")
    static Map<String, Object> fields(Object body) throws FrameException {
        if (body instanceof Map<?, ?> map) {
            return (Map<String, Object>) map;
        }
        throw wrong();
    }

    static String text(Object value) throws FrameException {
        if (value instanceof String text) {
            return text;
        }
        throw wrong();
    }

    private static long number(Object value, long most) throws FrameException {
        if (value instanceof Long number && number >= 0 && number <= most) {
            return number;
        }
        throw wrong();
    }

    static byte[] bytes(Object value) throws FrameException {
        if (value instanceof Buffer buffer) {
            return buffer.copy();
        }
        if (value instanceof byte[] bytes) {
            return bytes;
        }
        throw wrong();
    }

    private static List<Attribute> attributes(Object value) throws FrameException {
        List<Attribute> attributes = pairs(value);
        if (attributes.size() > ATTRIBUTES_MAX) {
            throw wrong();
        }
        return attributes;
    }

    static List<Attribute> pairs(Object value) throws FrameException {
        if (!(value instanceof List<?> pairs)) {
            throw wrong();
        }
        List<Attribute> attributes = new ArrayList<>();
        for (Object pair : pairs) {
            if (!(pair instanceof List<?> both) || both.size() != 2) {
                throw wrong();
            }
            attributes.add(new Attribute(text(both.get(0)), text(both.get(1))));
        }
        return attributes;
    }

    static FrameException wrong() {
        return new FrameException("record-field");
    }
}

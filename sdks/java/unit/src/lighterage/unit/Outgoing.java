package lighterage.unit;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** An event to be pushed. The host adds id, source and time. */
public final class Outgoing {
    private final byte[] data;
    private String type = "event";
    private String subject;
    private String contentType;
    private Long delayMs;
    private Long ttlMs;
    private final List<List<String>> attributes = new ArrayList<>();

    public Outgoing(byte[] data) {
        this.data = data;
    }

    public Outgoing(String data) {
        this(data.getBytes(StandardCharsets.UTF_8));
    }

    public Outgoing type(String type) {
        this.type = type;
        return this;
    }

    public Outgoing subject(String subject) {
        this.subject = subject;
        return this;
    }

    public Outgoing contentType(String contentType) {
        this.contentType = contentType;
        return this;
    }

    public Outgoing attribute(String name, String value) {
        attributes.add(List.of(name, value));
        return this;
    }

    /** It is not handled before so many milliseconds have passed. */
    public Outgoing delayMs(long delayMs) {
        this.delayMs = delayMs;
        return this;
    }

    /** It is a dead letter if it was not handled within so many milliseconds. */
    public Outgoing ttlMs(long ttlMs) {
        this.ttlMs = ttlMs;
        return this;
    }

    Map<String, Object> fields() {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("type", type);
        fields.put("subject", subject);
        fields.put("content-type", contentType);
        fields.put("attributes", attributes);
        fields.put("data", Link.carried(data));
        fields.put("delay-ms", delayMs);
        fields.put("ttl-ms", ttlMs);
        return fields;
    }
}

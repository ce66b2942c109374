package lighterage.unit;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import lighterage.frame.FrameException;

/** Outgoing HTTP, whole request and whole response. Needs the grant `hosts`. */
public final class Http {
    private Http() {}

    /** `timeoutMs` may be null: then the call's own time is the limit. */
    public record Request(String method, String url, List<Event.Attribute> headers, byte[] body, Long timeoutMs) {
        public Request(String method, String url) {
            this(method, url, List.of(), new byte[0], null);
        }
    }

    public record Response(long status, List<Event.Attribute> headers, byte[] body) {}

    public static Response get(String url) {
        return send(new Request("GET", url));
    }

    public static Response send(Request request) {
        List<List<String>> headers = new ArrayList<>();
        for (Event.Attribute header : request.headers()) {
            headers.add(List.of(header.name(), header.value()));
        }
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("method", request.method());
        fields.put("url", request.url());
        fields.put("headers", headers);
        fields.put("body", Link.carried(request.body()));
        fields.put("timeout-ms", request.timeoutMs());
        Map<?, ?> reply = Link.expect(Map.class, Link.current().ask("http.send", fields));
        try {
            long status = Link.expect(Long.class, reply.get("status"));
            return new Response(status, Event.pairs(reply.get("headers")), Event.bytes(reply.get("body")));
        } catch (FrameException wrong) {
            throw new Unavailable("the host's answer is no response");
        }
    }
}

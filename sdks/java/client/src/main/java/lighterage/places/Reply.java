package lighterage.places;

import java.util.HashMap;
import java.util.Map;

/** What came back, and when its parts came: seconds of the monotonic clock. */
public final class Reply {
    /** Seconds that a reply may say something took; of more it is not believed. */
    private static final double TIMING_SECONDS_MAX = 86_400.0;

    /** The status of HTTP. */
    public final int status;
    final Map<String, String> headers;
    /** The whole body. */
    public byte[] body = {};
    /** When the request began to be sent, when the head of the reply was there, and all of it. */
    public double beganAt;
    public double headAt;
    public double wholeAt;

    Reply(int status, Map<String, String> headers) {
        this.status = status;
        this.headers = headers;
    }

    String header(String name) {
        String found = headers.get(name);
        return found == null ? "" : found;
    }

    /** What the node says of its own times, in seconds: `queue;dur=0.1, run;dur=2` (Server Timing, W3C). */
    public Map<String, Double> timing() {
        Map<String, Double> times = new HashMap<>();
        for (String part : header("server-timing").split(",")) {
            int at = part.indexOf(";dur=");
            if (at < 0) {
                continue;
            }
            try {
                int end = part.indexOf(';', at + 5);
                double seconds = Double.parseDouble(part.substring(at + 5, end < 0 ? part.length() : end)) / 1_000;
                // Not a number is no number between these.
                if (seconds >= 0 && seconds <= TIMING_SECONDS_MAX) {
                    times.put(part.substring(0, at).trim(), seconds);
                }
            } catch (NumberFormatException strange) {
                continue;
            }
        }
        return times;
    }
}

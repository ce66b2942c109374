package lighterage.code;

import java.util.LinkedHashMap;
import java.util.Map;

/** What one call on a node may use. The node says no by its own limits beyond these. */
public final class Limits {
    /** Processor time for each second of wall time, because a method may have threads. */
    private static final long PROCESSORS = 16;
    private static final long CPU_MS_MAX = 86_400_000;
    private static final long WAIT_MS_MAX = 3_600_000;
    /** Calls of one method that a node runs at once, and that wait there. */
    private static final long CONCURRENCY = 64;
    private static final long WAITING = 1_000;

    /** Wall time of one call, in milliseconds. */
    public final long timeMs;
    /** Of the heap, and as much again for direct buffers. */
    public final long memoryBytes;
    /** Of the arguments, and of the result. */
    public final int bodyBytes;

    /** Limits of one call. */
    public Limits(long timeMs, long memoryBytes, int bodyBytes) {
        this.timeMs = timeMs;
        this.memoryBytes = memoryBytes;
        this.bodyBytes = bodyBytes;
    }

    Map<String, Object> asManifest() {
        Map<String, Object> limits = new LinkedHashMap<>();
        limits.put("time_ms", timeMs);
        limits.put("cpu_ms", Math.min(timeMs, CPU_MS_MAX / PROCESSORS) * PROCESSORS);
        limits.put("memory_bytes", memoryBytes);
        limits.put("body_bytes", (long) bodyBytes);
        limits.put("concurrency", CONCURRENCY);
        limits.put("waiting", WAITING);
        limits.put("wait_ms", Math.min(timeMs, WAIT_MS_MAX));
        return limits;
    }
}

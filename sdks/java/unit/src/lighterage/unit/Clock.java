package lighterage.unit;

/** The time. Asks nobody. */
public final class Clock {
    private Clock() {}

    /** Milliseconds since 1970-01-01 UTC. */
    public static long nowMs() {
        return System.currentTimeMillis();
    }

    /** Nanoseconds from a start of its own; never goes back. */
    public static long monotonicNs() {
        return System.nanoTime();
    }
}

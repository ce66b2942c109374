package lighterage.places;

/** Seconds that never go back. */
public final class Clock {
    private Clock() {}

    /** Seconds since some moment. */
    public static double now() {
        return System.nanoTime() / 1e9;
    }
}

package lighterage.decide;

/** What is known of one node, whatever the function. */
public final class Place {
    /** Bytes below which a transfer says little about the rate. */
    public static final long RATE_BYTES_MIN = 16_384;

    /** A probe is short: it begins slowly and knows one direction only. */
    private static final double PROBE_VARIANCE = 0.05;
    /** That calls were late is forgotten by half in this many seconds. */
    private static final double LATE_HALF_LIFE = 60.0;

    /** Times this machine's. */
    double speed;
    final Level roundTrip;
    final Level upRate;
    final Level downRate;
    final Level queue = new Level(1e-4, 1.0, 1e-2);
    final Level slowdown = new Level(1.0, 0.01, 5e-3);
    private double lateLog;
    private double lateAt;

    Place(double speed, double roundTrip, double bytesPerSecond) {
        this.speed = speed;
        this.roundTrip = new Level(roundTrip, 1.0, 2e-3);
        this.upRate = new Level(bytesPerSecond, 1.5, 2e-3);
        this.downRate = new Level(bytesPerSecond, 1.5, 2e-3);
    }

    /** Its speed, times this machine's, is known now. */
    public void isOfSpeed(double times) {
        speed = times;
    }

    /** The round trip, in seconds. */
    public Level roundTrip() {
        return roundTrip;
    }

    /** How many times longer than predicted calls take that were given up before their stages were known. */
    double late(double now) {
        return lateLog == 0.0 ? 1.0 : Math.exp(lateLog * Math.pow(0.5, (now - lateAt) / LATE_HALF_LIFE));
    }

    /** A call was given up after this many times its predicted time. */
    void observeLate(double ratio, double now) {
        lateLog = Math.log(Math.max(ratio * late(now), 1.0));
        lateAt = now;
    }

    /** A call came back, so its stages say what there is to say. */
    void observeAnswer() {
        lateLog = 0.0;
    }

    /** How many times slower than usual the place is, as far as was measured lately. */
    Guess slowed(double now) {
        return slowdown.guess(now);
    }

    /** A small download said what the network gives; of the way up it says as much, with more doubt. */
    public void observeProbe(double bytesPerSecond, double now) {
        downRate.observe(bytesPerSecond, now, PROBE_VARIANCE);
        upRate.observe(bytesPerSecond, now, 4 * PROBE_VARIANCE);
    }

    /** So many bytes went up in so many seconds. */
    public void observeUp(long bytes, double seconds, double now) {
        observe(upRate, bytes, seconds, now);
    }

    void observeDown(long bytes, double seconds, double now) {
        observe(downRate, bytes, seconds, now);
    }

    private static void observe(Level rate, long bytes, double seconds, double now) {
        if (bytes >= RATE_BYTES_MIN && seconds > 0) {
            rate.observe(bytes / seconds, now);
        }
    }
}

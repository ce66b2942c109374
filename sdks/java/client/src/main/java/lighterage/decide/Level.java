package lighterage.decide;

/**
 * One quantity that drifts and steps: a rate, a round trip, a slowdown. A Kalman filter in one dimension, on the
 * logarithm.
 *
 * <p>An estimate that is not renewed grows less sure with time. One that is contradicted clearly jumps instead of
 * creeping: a network that became ten times slower is known to be so after one call.
 */
public final class Level {
    private static final double VARIANCE_MAX = 4.0;

    private final double drift;
    private double log;
    private double variance;
    private double noise = 0.02;
    private double suspect;
    /** When it was measured last, in seconds; meaningless while `count` is 0. */
    private double at;
    private int count;

    /** `drift` is the variance that a second adds. */
    Level(double prior, double priorVariance, double drift) {
        this.log = Guess.logOf(prior);
        this.variance = priorVariance;
        this.drift = drift;
    }

    /** What a measurement would say now, its own noise included. `now` is in seconds. */
    public Guess guess(double now) {
        return new Guess(log, aged(now) + noise, noise);
    }

    /** A measurement. */
    public void observe(double value, double now) {
        observe(value, now, 0.0);
    }

    /** `unsure` is what the measurement itself is unsure by, as a variance of the logarithm. */
    void observe(double value, double now, double unsure) {
        double known = aged(now);
        double error = Guess.logOf(value) - log;
        double total = known + noise + unsure;
        if (count >= 2 && Steps.isFarOff(error, total)) {
            known = error * error;
            total = known + noise + unsure;
            if (!Steps.isStep(error, suspect)) {
                total *= 2;
            }
            suspect = error;
        } else if (count > 0) {
            suspect = 0.0;
            // What is left after the level's own doubt is noise.
            noise = Steps.noise(noise, error * error - known - unsure);
        }
        double gain = known / total;
        log += gain * error;
        variance = (1 - gain) * known;
        at = now;
        count++;
    }

    private double aged(double now) {
        return count == 0 ? variance : Math.min(variance + drift * Math.max(0.0, now - at), VARIANCE_MAX);
    }
}

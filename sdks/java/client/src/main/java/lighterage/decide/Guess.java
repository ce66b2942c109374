package lighterage.decide;

/** A positive quantity, as mean and variance of its natural logarithm. */
public final class Guess {
    /** The most variance that counts in what is expected: what takes very long would be given up. */
    private static final double WIDE = 1.0;
    /** The most variance that counts in how far it may be off. */
    static final double SPREAD_MAX = 3.0;
    /** The least value whose logarithm is taken: a tenth of a microsecond. */
    static final double LEAST = 1e-7;
    /** How much of a variance is left, at the least, of what is known to be beyond a bound. */
    private static final double BEYOND_MIN = 0.02;

    /** The mean of the logarithm. */
    public final double log;
    /** The variance of the logarithm: 0.01 is about ten per cent. */
    public final double variance;
    /** The part of the variance that is left when there is nothing more to learn. */
    public final double noise;

    /** A guess of which everything may still be learnt. */
    public Guess(double log, double variance) {
        this(log, variance, 0.0);
    }

    /** `noise` is the part of the variance that is left when there is nothing more to learn. */
    public Guess(double log, double variance, double noise) {
        this.log = log;
        this.variance = variance;
        this.noise = noise;
    }

    /** The expected value of the log-normal; a wide guess counts as its middle times 1.65 at most. */
    public double mean() {
        return Math.exp(log + Math.min(variance, WIDE) / 2);
    }

    /** As likely too small as too large. */
    public double middle() {
        return Math.exp(log);
    }

    /** Standard deviation of the quantity itself. */
    public double spread() {
        return mean() * Math.sqrt(Math.expm1(Math.min(variance, SPREAD_MAX)));
    }

    /** What is known once it is seen to be more than `value`: what is left of the normal to its right. */
    Guess beyond(double value) {
        double deviation = Math.sqrt(variance);
        double at = (logOf(value) - log) / deviation;
        double pull = Normal.pull(at);
        return new Guess(log + deviation * pull, variance * Math.max(1.0 - pull * (pull - at), BEYOND_MIN));
    }

    static double logOf(double value) {
        return Math.log(Math.max(value, LEAST));
    }
}

package lighterage.decide;

/** When a measurement is a step and not noise, and how noise is learnt: the same for levels and curves. */
final class Steps {
    /** A measurement this many standard deviations off is a step, not noise. */
    static final double SIGMAS = 3.0;
    /** One measurement that is off by this factor is a step; a smaller one may be chance until the next one agrees. */
    private static final double FACTOR = 3.0;
    /** Measured noise is believed only within these bounds (about 2 % and 65 %). */
    private static final double NOISE_MIN = 4e-4;
    private static final double NOISE_MAX = 0.25;
    /** Weight of the newest measurement in the noise. */
    private static final double NOISE_GAIN = 0.1;

    private Steps() {}

    /** Whether an error is larger than noise of this variance explains. */
    static boolean isFarOff(double error, double variance) {
        return error * error > SIGMAS * SIGMAS * variance;
    }

    /** Whether a measurement that is clearly off is believed at once. */
    static boolean isStep(double error, double suspect) {
        return Math.abs(error) > Math.log(FACTOR) || error * suspect > 0.0;
    }

    /** The noise after a measurement of which `left` is not explained otherwise. */
    static double noise(double noise, double left) {
        return noise + NOISE_GAIN * (Math.min(Math.max(left, NOISE_MIN), NOISE_MAX) - noise);
    }
}

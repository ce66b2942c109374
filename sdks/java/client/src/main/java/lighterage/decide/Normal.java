package lighterage.decide;

/** The standard normal distribution, which Java's library has not. Right to one part in 10¹². */
final class Normal {
    /** Below this the series of the error function is short; above it the continued fraction is. */
    private static final double SERIES_MAX = 2.5;

    private Normal() {}

    /** The part of a standard normal that is less than `at`. */
    static double below(double at) {
        return 0.5 * erfc(-at / Math.sqrt(2));
    }

    /** The mean of a standard normal beyond `at`. */
    static double pull(double at) {
        if (at > 6.0) {
            return at + 1.0 / at;
        }
        return Math.exp(-at * at / 2) / Math.sqrt(2 * Math.PI) / (0.5 * erfc(at / Math.sqrt(2)));
    }

    /** The complementary error function. */
    static double erfc(double x) {
        if (x < 0) {
            return 2.0 - erfc(-x);
        }
        return x < SERIES_MAX ? 1.0 - series(x) : fraction(x);
    }

    /** `erf x = 2/√π · e^(−x²) · Σ 2ⁿ x^(2n+1) / (1·3·…·(2n+1))`, whose terms are all positive. */
    private static double series(double x) {
        double term = x;
        double sum = x;
        for (int n = 1; term > sum * 1e-17; n++) {
            term *= 2 * x * x / (2 * n + 1);
            sum += term;
        }
        return 2 / Math.sqrt(Math.PI) * Math.exp(-x * x) * sum;
    }

    /** `erfc x = e^(−x²)/√π · 1/(x + ½/(x + 1/(x + 3/2/(x + …))))`, from the inside. */
    private static double fraction(double x) {
        double inner = x;
        for (int n = 120; n > 0; n--) {
            inner = x + n / 2.0 / inner;
        }
        return Math.exp(-x * x) / Math.sqrt(Math.PI) / inner;
    }
}

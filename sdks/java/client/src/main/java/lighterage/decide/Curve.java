package lighterage.decide;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * A quantity that follows a size by a power, `log y = a + b log x`, both learned by recursive least squares.
 *
 * <p>Where a size was seen before, what was seen there counts too: few functions follow one power at all sizes, and
 * most are called with the same few sizes again and again.
 */
public final class Curve {
    /** Sizes this close to each other, in the logarithm, share a spot; and the most spots that a curve keeps. */
    private static final double SPOT_WIDTH = 0.1;
    private static final int SPOTS_MAX = 64;
    /** A spot is never surer of its middle than this, so that it goes with what changes slowly. */
    private static final double SPOT_VARIANCE_MIN = 1e-3;
    /** The first time is often longer than the others, by what it finds cold. */
    private static final double FIRST_VARIANCE = 0.3;
    /** A measurement this unsure says how much it may be, not how much it is. */
    private static final double VAGUE = 0.5;
    /** How little the height of a curve is known of which only bounds were seen. */
    private static final double BOUNDS_VARIANCE = 1.0;
    /** How much a curve may bend between sizes that were seen; where sizes are numbers, work may grow as it likes. */
    private static final double BEND = 0.3;
    private static final double BEND_OF_NUMBERS = 8.0;
    private static final double BEND_MAX = 0.5;
    /** The power of work that grows with a number: that of a square grid, give or take four. */
    private static final double NUMBERS_SLOPE = 2.0;
    private static final double NUMBERS_SLOPE_VARIANCE = 16.0;
    private static final double NUMBERS_MAX = 512.0;

    /** What was seen at nearly one size. */
    private static final class Spot {
        private double x;
        private double log;
        private double variance;

        private Spot(double x, double log, double variance) {
            this.x = x;
            this.log = log;
            this.variance = variance;
        }
    }

    private final boolean isWork;
    private final Map<Long, Spot> spots = new LinkedHashMap<>();
    private boolean isOpen;
    private double a;
    private double b;
    private double paa;
    private double pab;
    private double pbb;
    private double noise = 0.01;
    private double suspect;
    private boolean hasCenter;
    private double center;
    private double spotNoise = 0.01;
    private int count;

    private Curve(boolean isOpen, double intercept, double slope, double[] variances, boolean isWork) {
        this.isOpen = isOpen;
        this.a = intercept;
        this.b = slope;
        this.paa = variances[0];
        this.pbb = variances[1];
        this.isWork = isWork;
    }

    /** One whose height is what is seen first. */
    static Curve open(double slope, double variance, double slopeVariance) {
        return new Curve(true, 0.0, slope, new double[] {variance, slopeVariance}, false);
    }

    /** `intercept` is log y at the first size that is seen: sizes count from there, which keeps both apart. */
    static Curve at(double intercept, double slope, double variance, double slopeVariance) {
        return new Curve(false, intercept, slope, new double[] {variance, slopeVariance}, false);
    }

    /** A run time of this height, which grows otherwise with a number than with bytes. */
    static Curve work(double intercept, double variance) {
        return new Curve(false, intercept, 1.0, new double[] {variance, 0.25}, true);
    }

    /** Measurements that count as seen. */
    int count() {
        return count;
    }

    /** A size that was seen. */
    double typical() {
        return Math.exp(center);
    }

    /** What it will be at this size. */
    public Guess guess(double size) {
        double x = x(size);
        double log = a + b * x;
        double variance = Math.max(paa + 2 * x * pab + x * x * pbb, 0.0) + noise;
        Spot spot = spots.get(key(x));
        if (spot == null) {
            return new Guess(log, variance + bend(size, x), noise);
        }
        double weight = variance / (variance + spot.variance);
        double seen = spot.log + b * (x - spot.x);
        return new Guess(log + weight * (seen - log), weight * spot.variance + spotNoise, spotNoise);
    }

    void observe(double size, double value) {
        observe(size, value, 0.0);
    }

    /** `unsure` is what the measurement itself is unsure by, as a variance of the logarithm. */
    void observe(double size, double value, double unsure) {
        if (!hasCenter) {
            begin(size);
            if (isOpen) {
                a = Guess.logOf(value);
            }
        } else if (count == 0) {
            // Until now there were only bounds: sizes count from what is measured first, and its height is news.
            double x = x(size);
            a += b * x;
            paa += 2 * x * pab + x * x * pbb + BOUNDS_VARIANCE;
            pab = 0.0;
            center += x;
        }
        learn(x(size), Guess.logOf(value), unsure);
        double doubt = count == 0 && !isOpen ? FIRST_VARIANCE : 0.0;
        observeSpot(x(size), Guess.logOf(value), doubt + unsure);
        // Never quite sure: a function's work may change slowly.
        paa += 2e-4 + doubt;
        pbb = Math.max(pbb, 1e-5);
        if (unsure < VAGUE || count == 0) {
            // Only what was measured well counts as seen.
            count++;
        }
    }

    private void learn(double x, double seen, double unsure) {
        double error = seen - (a + b * x);
        double toA = paa + x * pab;
        double toB = pab + x * pbb;
        double variance = toA + x * toB;
        double total = variance + noise + unsure;
        if (count >= 2 && Steps.isFarOff(error, total) && !isAsSeen(x, error)) {
            // The work itself has changed, or grows otherwise than was thought: what was known of the height goes, the
            // slope stays likely.
            if (spots.containsKey(key(x))) {
                spots.clear();
            }
            paa += error * error;
            toA += error * error;
            variance += error * error;
            total = variance + noise + unsure;
            if (!Steps.isStep(error, suspect)) {
                total *= 2;
            }
            suspect = error;
        } else if (count >= 2) {
            suspect = 0.0;
            noise = Steps.noise(noise, error * error - variance - unsure);
        }
        double gainA = toA / total;
        double gainB = toB / total;
        a += gainA * error;
        b += gainB * error;
        paa -= gainA * toA;
        pab -= gainA * toB;
        pbb -= gainB * toB;
    }

    /**
     * What was measured is more than `value`, by how much nobody knows (Tobit, 1958): the part of it that was thought
     * to be less is given up, so what is no surprise teaches next to nothing.
     */
    void observeLonger(double size, double value) {
        if (!hasCenter) {
            begin(size);
        }
        double x = x(size);
        double toA = paa + x * pab;
        double toB = pab + x * pbb;
        Guess seen = new Guess(a + b * x, Math.max(toA + x * toB, 0.0) + noise);
        Guess known = seen.beyond(value);
        double error = known.log - seen.log;
        if (Steps.isFarOff(error, seen.variance)) {
            // As with a measurement: what was known of the height goes.
            paa += error * error;
            toA += error * error;
            seen = new Guess(seen.log, seen.variance + error * error);
            known = seen.beyond(value);
            error = known.log - seen.log;
        }
        // Only the height: a bound says nothing of the slope that would be worth believing.
        double gain = toA / seen.variance;
        double left = 1.0 - known.variance / seen.variance;
        a += gain * error;
        paa -= gain * toA * left;
        pab -= gain * toB * left;
        Spot spot = spots.get(key(x));
        if (spot != null) {
            Guess here = new Guess(spot.log + b * (x - spot.x), spot.variance + spotNoise);
            double moved = here.beyond(value).log - here.log;
            boolean isStep = Steps.isFarOff(moved, here.variance);
            spot.log += moved * (isStep ? 1.0 : spot.variance / here.variance);
        } else if (error > 0.5 * Math.sqrt(seen.variance)) {
            // No measurement, but more than nothing to remember this size by.
            spots.put(key(x), new Spot(x, known.log, known.variance));
        }
    }

    /** Nothing was measured yet, but this is known of what will be. */
    void start(double size, Guess guess) {
        begin(size);
        isOpen = false;
        a = guess.log;
        paa = guess.variance;
        count = 1;
    }

    private void begin(double size) {
        hasCenter = true;
        center = Math.log(Math.max(size, 1.0));
        if (isWork && size <= NUMBERS_MAX) {
            b = NUMBERS_SLOPE;
            pbb = NUMBERS_SLOPE_VARIANCE;
        }
    }

    /** The variance of what lies between or beyond the sizes that were seen. */
    private double bend(double size, double x) {
        if (spots.isEmpty()) {
            return 0.0;
        }
        double away = Double.POSITIVE_INFINITY;
        for (Spot spot : spots.values()) {
            away = Math.min(away, Math.abs(spot.x - x));
        }
        double bend = (size <= NUMBERS_MAX ? BEND_OF_NUMBERS : BEND) * away;
        return Math.min(bend * bend, BEND_MAX);
    }

    /** Whether what is off the line by `error` is what was seen at this size before. */
    private boolean isAsSeen(double x, double error) {
        Spot spot = spots.get(key(x));
        return spot != null && !Steps.isFarOff(a + b * spot.x + error - spot.log, spot.variance + spotNoise);
    }

    private void observeSpot(double x, double log, double doubt) {
        Spot spot = spots.get(key(x));
        if (spot == null) {
            if (spots.size() >= SPOTS_MAX) {
                Iterator<Long> oldest = spots.keySet().iterator();
                oldest.next();
                oldest.remove();
            }
            spots.put(key(x), new Spot(x, log, spotNoise + doubt));
            return;
        }
        double error = log - (spot.log + b * (x - spot.x));
        double total = spot.variance + spotNoise + doubt;
        if (Steps.isFarOff(error, total)) {
            // As if it were seen for the second time.
            spot.variance = spotNoise;
            total = 2 * spotNoise + doubt;
        }
        double left = error * error - spot.variance - doubt;
        double gain = spot.variance / total;
        spotNoise = Steps.noise(spotNoise, left);
        spot.x = x;
        spot.log = log - (1 - gain) * error;
        spot.variance = Math.max((1 - gain) * spot.variance, SPOT_VARIANCE_MIN);
    }

    private double x(double size) {
        return hasCenter ? Math.log(Math.max(size, 1.0)) - center : 0.0;
    }

    private static Long key(double x) {
        return (long) Math.rint(x / SPOT_WIDTH);
    }
}

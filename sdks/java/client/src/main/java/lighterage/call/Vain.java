package lighterage.call;

/**
 * Calls of a method that ran on nodes and brought nothing: results that do not travel, limits that are too small.
 *
 * <p>One may be due to its arguments. After the second in a row the method rests from nodes, for a time that doubles.
 * Safe for threads.
 */
final class Vain {
    /** Calls in a row after which it rests. */
    private static final int IN_A_ROW = 2;
    /** Seconds for which it rests: the first time, and at most. */
    private static final double REST_SECONDS = 5.0;
    private static final double REST_SECONDS_MAX = 300.0;

    private int count;
    private double until = Double.NEGATIVE_INFINITY;

    /** A call was in vain, at this time of the monotonic clock. */
    synchronized void begin(double now) {
        if (isResting(now)) {
            // It began before the rest.
            return;
        }
        count++;
        if (count >= IN_A_ROW) {
            int doublings = Math.min(count - IN_A_ROW, 16);
            until = now + Math.min(REST_SECONDS * Math.pow(2, doublings), REST_SECONDS_MAX);
        }
    }

    /** A call was not. */
    synchronized void end() {
        count = 0;
        until = Double.NEGATIVE_INFINITY;
    }

    /** Whether calls should run here. */
    synchronized boolean isResting(double now) {
        return now < until;
    }
}

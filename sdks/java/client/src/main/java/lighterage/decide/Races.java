package lighterage.decide;

/**
 * When a call is worth running at two places at once, and how many may be: the budget of one client.
 *
 * <p>Running both costs no time where the client has some to spare, but work: the client's, the node's and the
 * network's. So planned races are for the calls whose better place is most in doubt, and at most one call in ten is one
 * of them.
 */
final class Races {
    /** Races that may be saved up. */
    private static final double SAVED_MAX = 4.0;
    /** What races may be owed: late calls are doubled whatever was spent, and planned ones wait for it to be earned. */
    private static final double OWED_MAX = 4.0;
    /** The doubt that a race needs at first, and what the bar is between. */
    private static final double BAR = 0.04;
    private static final double BAR_MIN = 0.01;
    private static final double BAR_MAX = 0.5;
    /** How fast the bar follows, so that as many calls are above it as may be raced. */
    private static final double BAR_GAIN = 0.15;

    private double saved = 1.0;
    private double bar = BAR;
    private double extraSeconds;
    private double totalSeconds;

    /** Whether a call of this doubt is among those that are raced. */
    boolean isWorth(double doubt) {
        return doubt >= bar;
    }

    /** Whether one more is paid for, where `part` of all calls and of their time may be spent so. */
    boolean hasBudget(double part) {
        return saved >= 1.0 && extraSeconds <= part * totalSeconds;
    }

    /** A call was decided, and took so long. */
    void called(double doubt, double seconds, double part) {
        totalSeconds += seconds;
        saved = Math.min(saved + part, SAVED_MAX);
        // As many calls shall pass as can be paid for.
        bar *= Math.exp(BAR_GAIN * ((doubt >= bar ? 1.0 : 0.0) - part));
        bar = Math.min(Math.max(bar, BAR_MIN), BAR_MAX);
    }

    /** A call ran at two places, and the half whose result was not used took so much of this machine's processor. */
    void raced(double seconds) {
        saved = Math.max(saved - 1.0, -OWED_MAX);
        extraSeconds += seconds;
    }

    /**
     * Seconds that the rival, begun so much later, is expected to save: `E max(best − after − rival, 0)`.
     *
     * <p>Both are taken as log-normal, so it is the worth of an option to exchange one for the other (Margrabe, 1978).
     */
    static double saving(Prediction best, Prediction rival, double after) {
        double other = rival.seconds + after;
        double spread = Math.sqrt(best.logVariance() + Prediction.logVariance(rival.spread, other));
        if (spread <= 0.0 || best.seconds <= 0.0) {
            return 0.0;
        }
        double above = (Math.log(best.seconds / other) + spread * spread / 2) / spread;
        return best.seconds * Normal.below(above) - other * Normal.below(above - spread);
    }

    /**
     * Seconds that a call on a node is expected to take which begins here once it is late, and whose answer waits for
     * that: the part of the log-normal below `after`, and `after + here` for the rest of it.
     */
    static double hedged(Prediction there, double after, double here) {
        double variance = there.logVariance();
        if (variance <= 0.0 || there.seconds <= 0.0 || after <= 0.0) {
            return there.seconds <= after ? there.seconds : after + here;
        }
        double spread = Math.sqrt(variance);
        double at = (Math.log(after / there.seconds) + variance / 2) / spread;
        return there.seconds * Normal.below(at - spread) + Normal.below(-at) * (after + here);
    }
}

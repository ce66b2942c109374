package lighterage.decide;

/** Why a place was chosen. */
public enum Choice {
    /** There is no other. */
    ONLY("the only place"),
    /** It has the lowest expected time. */
    BEST("expected to finish first"),
    /** Another is a little better, but not enough to move. */
    KEPT("chosen before, and no other is clearly better"),
    /** It may be better than is known. */
    EXPLORED("tried, to know it better"),
    /** It runs at two places. */
    RACED("both at once: nobody can tell which is sooner"),
    /** No place is sure to meet the deadline. */
    DEADLINE("most likely to meet the deadline");

    /** The reason in words. */
    public final String reason;

    Choice(String reason) {
        this.reason = reason;
    }
}

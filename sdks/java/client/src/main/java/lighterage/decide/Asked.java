package lighterage.decide;

/** A function, and what its work grew with in one call. */
public final class Asked {
    final String function;
    final double size;

    /** A call of this function of this size. */
    public Asked(String function, double size) {
        this.function = function;
        this.size = size;
    }
}

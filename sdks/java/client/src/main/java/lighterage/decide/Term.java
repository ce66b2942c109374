package lighterage.decide;

/** One stage of a prediction. */
public final class Term {
    /** `encode`, `up`, `round trip`, `queue`, `run`, `down` or `decode`. */
    public final String name;
    /** The expected value. */
    public final double seconds;
    /** Its standard deviation, in seconds. */
    public final double spread;

    Term(String name, Guess guess) {
        this.name = name;
        this.seconds = guess.mean();
        this.spread = guess.spread();
    }
}

package lighterage.call;

/** What a method did on a node: it returned `value`, or threw. */
final class Outcome {
    private final Object value;
    private final Throwable thrown;

    private Outcome(Object value, Throwable thrown) {
        this.value = value;
        this.thrown = thrown;
    }

    static Outcome returned(Object value) {
        return new Outcome(value, null);
    }

    static Outcome threw(Throwable thrown) {
        return new Outcome(null, thrown);
    }

    /** The value; throws what was thrown. */
    Object get() throws Throwable {
        if (thrown != null) {
            throw thrown;
        }
        return value;
    }
}

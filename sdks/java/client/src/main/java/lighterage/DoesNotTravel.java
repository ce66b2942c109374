package lighterage;

/** A value has no meaning on another machine. */
public final class DoesNotTravel extends LighterageException {
    private static final long serialVersionUID = 1;

    /** `message` says what was tried and what happened. */
    public DoesNotTravel(String message) {
        super("L8004", message);
    }
}

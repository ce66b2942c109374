package lighterage;

/** Arguments or result are larger than a call may be. */
public final class CallTooLarge extends LighterageException {
    private static final long serialVersionUID = 1;

    /** `message` says what was tried and what happened. */
    public CallTooLarge(String message) {
        super("L8007", message);
    }
}

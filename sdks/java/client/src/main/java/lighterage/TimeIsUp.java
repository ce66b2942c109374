package lighterage;

/** The call did not end in its time. The method may have run. */
public final class TimeIsUp extends LighterageException {
    private static final long serialVersionUID = 1;

    /** `message` says what was tried and what happened. */
    public TimeIsUp(String message) {
        super("L8005", message);
    }
}

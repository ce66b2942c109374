package lighterage;

/** A call on the thread that draws: it would stand still meanwhile. Use `submit`. */
public final class OnMainThread extends LighterageException {
    private static final long serialVersionUID = 1;

    /** `message` says what was tried and what happened. */
    public OnMainThread(String message) {
        super("L8008", message);
    }
}

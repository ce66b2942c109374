package lighterage;

/** The call may run on a node only, and there is none. */
public final class NoNode extends LighterageException {
    private static final long serialVersionUID = 1;

    /** `message` says what was tried and what happened. */
    public NoNode(String message) {
        super("L8001", message);
    }
}

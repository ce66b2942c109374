package lighterage;

/** No connection to the node. Nothing was run. */
public final class NodeUnreachable extends LighterageException {
    private static final long serialVersionUID = 1;

    /** `message` says what was tried and what happened. */
    public NodeUnreachable(String message) {
        super("L1102", message);
    }
}

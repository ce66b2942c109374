package lighterage;

/** What listens there is not the node of the data folder. Nothing was run, and it was sent no token. */
public final class NodeUnproven extends LighterageException {
    private static final long serialVersionUID = 1;

    /** `message` says what was tried and what happened. */
    public NodeUnproven(String message) {
        super("L1109", message);
    }
}

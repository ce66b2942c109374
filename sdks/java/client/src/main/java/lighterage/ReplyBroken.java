package lighterage;

/** The reply broke off or makes no sense. The method may have run. */
public final class ReplyBroken extends LighterageException {
    private static final long serialVersionUID = 1;

    /** `message` says what was tried and what happened. */
    public ReplyBroken(String message) {
        super("L8002", message);
    }
}

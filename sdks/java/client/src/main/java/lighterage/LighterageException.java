package lighterage;

/**
 * What can go wrong between here and a node. What goes wrong in the method arrives as itself.
 *
 * <p>Each has the stable code of {@code contracts/errors.toml}; {@code lighter errors L8002} explains one.
 */
public class LighterageException extends RuntimeException {
    private static final long serialVersionUID = 1;

    private final String code;
    private volatile boolean isOfDeployment;

    /** An error of this code; `message` says what was tried and what happened. */
    public LighterageException(String code, String message) {
        super(message);
        this.code = code;
    }

    /** As `L8001`. */
    public final String code() {
        return code;
    }

    /** Whether the node has not got the method, so that nothing was run. */
    public final boolean isOfDeployment() {
        return isOfDeployment;
    }

    /** It went wrong while the method was put on a node. */
    public final void setOfDeployment() {
        isOfDeployment = true;
    }

    @Override
    public final String toString() {
        return getClass().getName() + ": " + getMessage() + " [" + code + "]";
    }
}

package lighterage.unit;

/** Why a handler did not do its work. Everything it wrote in this handling is undone. */
public abstract sealed class Failure extends RuntimeException permits Invalid, Retry, Fatal {
    private static final long serialVersionUID = 1;

    Failure(String message, Throwable cause) {
        super(message, cause);
    }

    /** The contract's word for it. */
    abstract String kind();
}

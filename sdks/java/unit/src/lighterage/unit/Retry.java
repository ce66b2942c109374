package lighterage.unit;

/** It may work later. */
public final class Retry extends Failure {
    private static final long serialVersionUID = 1;

    public Retry(String message) {
        this(message, null);
    }

    public Retry(String message, Throwable cause) {
        super(message, cause);
    }

    @Override
    String kind() {
        return "retry";
    }
}

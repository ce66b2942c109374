package lighterage.unit;

/** The event can never be handled: it goes to the dead letters at once. */
public final class Invalid extends Failure {
    private static final long serialVersionUID = 1;

    public Invalid(String message) {
        this(message, null);
    }

    public Invalid(String message, Throwable cause) {
        super(message, cause);
    }

    @Override
    String kind() {
        return "invalid";
    }
}

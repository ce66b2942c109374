package lighterage.unit;

/** It failed, and trying again is of no use. */
public final class Fatal extends Failure {
    private static final long serialVersionUID = 1;

    public Fatal(String message) {
        this(message, null);
    }

    public Fatal(String message, Throwable cause) {
        super(message, cause);
    }

    @Override
    String kind() {
        return "fatal";
    }
}

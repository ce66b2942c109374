package lighterage.unit;

/** An argument is malformed or over a limit. The message says which limit. */
public final class Malformed extends Refused {
    private static final long serialVersionUID = 1;

    Malformed(String message) {
        super(message);
    }
}

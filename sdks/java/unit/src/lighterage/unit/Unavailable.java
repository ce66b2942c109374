package lighterage.unit;

/** The host could not do it now. It may or may not have happened. */
public final class Unavailable extends Refused {
    private static final long serialVersionUID = 1;

    Unavailable(String message) {
        super(message);
    }
}

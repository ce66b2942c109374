package lighterage.convert;

/** An image that is sound, and reaches what Android's base does not have; the message names it. */
final class Lacking extends RuntimeException {
    private static final long serialVersionUID = 1;

    Lacking(String message) {
        super(message);
    }
}

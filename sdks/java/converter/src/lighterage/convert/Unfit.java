package lighterage.convert;

/** An image that cannot run on Android's base; the message says what is wrong with it. */
final class Unfit extends RuntimeException {
    private static final long serialVersionUID = 1;

    Unfit(String message) {
        super(message);
    }
}

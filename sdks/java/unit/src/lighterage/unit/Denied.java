package lighterage.unit;

/** No grant in the manifest covers it. The message says which grant would. */
public final class Denied extends Refused {
    private static final long serialVersionUID = 1;

    Denied(String message) {
        super(message);
    }
}

package lighterage.unit;

/** The host refused what was asked for. */
public class Refused extends RuntimeException {
    private static final long serialVersionUID = 1;

    Refused(String message) {
        super(message);
    }

    static Refused of(String kind, String message) {
        return switch (kind) {
            case "denied" -> new Denied(message);
            case "invalid" -> new Malformed(message);
            case "unavailable" -> new Unavailable(message);
            default -> new Refused(message);
        };
    }
}

package lighterage;

/** A setting is not what it should be. */
public final class ConfigInvalid extends LighterageException {
    private static final long serialVersionUID = 1;

    /** `message` says what was tried and what happened. */
    public ConfigInvalid(String message) {
        super("L9003", message);
    }
}

package lighterage.unit;

/** Values from the manifest (`config`) and secrets (`grants.secrets`) by name. */
public final class Config {
    private Config() {}

    /** The value; null if there is none. */
    public static String get(String name) {
        return Link.expect(String.class, Link.current().ask("config.get", name));
    }
}

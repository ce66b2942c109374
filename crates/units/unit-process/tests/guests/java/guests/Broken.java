package guests;

/** A class that is not initialised. */
public final class Broken {
    static {
        System.out.println("printed while it was loaded");
        if (System.getProperty("java.version") != null) {
            throw new IllegalStateException("no luck");
        }
    }

    public static String handle(String data) {
        return data;
    }
}

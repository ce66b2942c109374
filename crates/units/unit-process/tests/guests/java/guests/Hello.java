package guests;

/** The smallest handler: greets the name in the data. */
public final class Hello {
    public static String handle(String name) {
        return "hello, " + (name.isEmpty() ? "world" : name) + "\n";
    }
}

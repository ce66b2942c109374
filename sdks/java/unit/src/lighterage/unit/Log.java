package lighterage.unit;

/** Lines in the function's log. What is printed goes there too. */
public final class Log {
    private Log() {}

    public static void trace(String message) {
        write("trace", message);
    }

    public static void debug(String message) {
        write("debug", message);
    }

    public static void info(String message) {
        write("info", message);
    }

    public static void warn(String message) {
        write("warn", message);
    }

    public static void error(String message) {
        write("error", message);
    }

    private static void write(String level, String message) {
        Link.current().tell("log.write", level, message);
    }
}

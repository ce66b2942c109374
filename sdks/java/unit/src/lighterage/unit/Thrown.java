package lighterage.unit;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** What a function has thrown, read with care: its class may be the function's own, and do anything it likes. */
final class Thrown {
    private static final int CAUSES_MAX = 16;

    private Thrown() {}

    /** The word by which the host knows how a unit crashed. */
    static String kind(Throwable thrown) {
        if (thrown instanceof StackOverflowError) {
            return "stack";
        }
        // The virtual machine's word for a thread it was refused is the same as for memory.
        boolean isThread = String.valueOf(message(thrown)).startsWith("unable to create");
        return thrown instanceof OutOfMemoryError && !isThread ? "memory" : "trapped";
    }

    static String message(Throwable thrown) {
        try {
            return thrown.getMessage();
        } catch (Throwable worse) {
            return "its message cannot be had: " + worse.getClass().getName();
        }
    }

    /** To the log, with the stack. */
    static void print(Throwable thrown) {
        try {
            thrown.printStackTrace();
        } catch (Throwable worse) {
            String name = thrown.getClass().getName();
            System.err.println(name + ", whose stack cannot be had: " + worse.getClass().getName());
        }
    }

    static Map<String, Object> fields(Throwable thrown, int most) {
        return fields(thrown, most, CAUSES_MAX);
    }

    private static Map<String, Object> fields(Throwable thrown, int most, int causes) {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("class", thrown.getClass().getName());
        fields.put("message", message(thrown));
        List<String> stack = new ArrayList<>();
        for (StackTraceElement element : thrown.getStackTrace()) {
            if (stack.size() < most) {
                stack.add(element.toString());
            }
        }
        fields.put("stack", stack);
        Throwable cause = thrown.getCause();
        fields.put("cause", cause == null || causes == 0 ? null : fields(cause, most, causes - 1));
        return fields;
    }
}

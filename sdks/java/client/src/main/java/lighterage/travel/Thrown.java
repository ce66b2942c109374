package lighterage.travel;

import java.util.Collections;
import java.util.List;
import java.util.Map;
import lighterage.RemoteException;

/** What a method threw on a node: a class's name, words, the stack there, and a cause. */
public final class Thrown {
    private static final int LEVELS_MAX = 16;
    private static final int STACK_MAX = 500;

    /** Of its class. */
    public final String name;
    /** Null where it had none. */
    public final String message;
    private final List<?> stack;
    private final Thrown cause;

    Thrown(Object said) {
        this(said, 1);
    }

    private Thrown(Object said, int level) {
        if (!(said instanceof Map) || !(((Map<?, ?>) said).get("class") instanceof String)) {
            throw new IllegalArgumentException("an exception without a class");
        }
        Map<?, ?> fields = (Map<?, ?>) said;
        Object words = fields.get("message");
        Object elements = fields.get("stack");
        Object inner = fields.get("cause");
        this.name = (String) fields.get("class");
        this.message = words instanceof String ? (String) words : null;
        this.stack = elements instanceof List ? (List<?>) elements : Collections.emptyList();
        this.cause = inner == null || level == LEVELS_MAX ? null : new Thrown(inner, level + 1);
    }

    /** Gives an exception the stack that it had on the node, and its causes. */
    public Throwable onto(Throwable made) {
        StackTraceElement[] elements = new StackTraceElement[Math.min(stack.size(), STACK_MAX)];
        for (int at = 0; at < elements.length; at++) {
            elements[at] = element(String.valueOf(stack.get(at)));
        }
        made.setStackTrace(elements);
        if (cause != null && made.getCause() == null) {
            try {
                made.initCause(cause.asRemote());
            } catch (IllegalStateException closed) {
                // Made without one for good.
                return made;
            }
        }
        return made;
    }

    /** As it arrives where its class is not known. */
    public Throwable asRemote() {
        Throwable usual = Usual.make(name, message);
        return onto(usual == null ? new RemoteException(name, message) : usual);
    }

    /** `app.Work.run(Work.java:7)` as what it says. */
    private static StackTraceElement element(String text) {
        int open = text.indexOf('(');
        int dot = open < 0 ? -1 : text.lastIndexOf('.', open);
        if (dot < 0) {
            return new StackTraceElement("", text, null, -1);
        }
        String place = text.substring(open + 1, text.endsWith(")") ? text.length() - 1 : text.length());
        int colon = place.lastIndexOf(':');
        int line = -1;
        if (colon >= 0 && place.substring(colon + 1).matches("[0-9]{1,9}")) {
            line = Integer.parseInt(place.substring(colon + 1));
            place = place.substring(0, colon);
        }
        return new StackTraceElement(text.substring(0, dot), text.substring(dot + 1, open), place, line);
    }
}

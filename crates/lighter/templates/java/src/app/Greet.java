package app;

import java.net.URLDecoder;
import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import lighterage.unit.Event;
import lighterage.unit.Invalid;
import lighterage.unit.Retry;
import lighterage.unit.Store;
import lighterage.unit.Unavailable;

/** The function {{name}}: greets the person named in the data, or in ?name= of the URL, and counts the greetings. */
public final class Greet {
    private Greet() {}

    /** What is printed, and the stack of what is thrown and not caught, ends up in the function's log. */
    public static String handle(Event event) {
        String name = data(event);
        if (name.isEmpty()) {
            name = nameInQuery(event);
        }
        try {
            long count = Store.increment("{{name}}", "greetings", 1);
            return "hello, " + name + ", greeting " + count + "\n";
        } catch (Unavailable refused) {
            throw new Retry(refused.getMessage());
        }
    }

    private static String data(Event event) {
        try {
            return StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(event.data())).toString();
        } catch (CharacterCodingException strange) {
            throw new Invalid("the data is not UTF-8");
        }
    }

    private static String nameInQuery(Event event) {
        String query = event.attribute("httpquery");
        for (String pair : query == null ? new String[0] : query.split("&")) {
            if (pair.startsWith("name=") && !pair.equals("name=")) {
                return decoded(pair.substring("name=".length()));
            }
        }
        return "world";
    }

    private static String decoded(String text) {
        try {
            return URLDecoder.decode(text, StandardCharsets.UTF_8);
        } catch (IllegalArgumentException strange) {
            throw new Invalid("the name in the URL is not percent-encoded");
        }
    }
}

package lighterage.json;

import java.math.BigInteger;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * JSON, read strictly and written plainly: null, Boolean, Long, BigInteger, Double, String, List, Map in their order.
 *
 * <p>Numbers that JSON does not have are written as null.
 */
public final class Json {
    /** Values around a value, itself included. */
    public static final int DEPTH_MAX = 64;
    /** Digits of a whole number: to read it takes time that grows with their square. */
    public static final int DIGITS_MAX = 4_300;

    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    /** Reads one value, which the text is whole. Throws IllegalArgumentException with the place where it is none. */
    public static Object read(String text) {
        Json json = new Json(text);
        Object value = json.value(1);
        json.space();
        if (json.at < text.length()) {
            throw json.wrong("there is more behind the value");
        }
        return value;
    }

    private Object value(int depth) {
        if (depth > DEPTH_MAX) {
            throw wrong("it is deeper than " + DEPTH_MAX);
        }
        space();
        char first = at < text.length() ? text.charAt(at) : 0;
        switch (first) {
            case '{':
                return map(depth);
            case '[':
                return list(depth);
            case '"':
                return string();
            case 't':
                return word("true", true);
            case 'f':
                return word("false", false);
            case 'n':
                return word("null", null);
            default:
                return number();
        }
    }

    private Map<String, Object> map(int depth) {
        Map<String, Object> map = new LinkedHashMap<>();
        at++;
        space();
        if (next('}')) {
            return map;
        }
        do {
            space();
            if (at >= text.length() || text.charAt(at) != '"') {
                throw wrong("a key is missing");
            }
            String key = string();
            space();
            if (!next(':')) {
                throw wrong("a colon is missing");
            }
            Object value = value(depth + 1);
            if (map.containsKey(key)) {
                throw wrong("the key \"" + key + "\" occurs twice");
            }
            map.put(key, value);
            space();
        } while (next(','));
        if (!next('}')) {
            throw wrong("a brace is missing");
        }
        return map;
    }

    private List<Object> list(int depth) {
        List<Object> list = new ArrayList<>();
        at++;
        space();
        if (next(']')) {
            return list;
        }
        do {
            list.add(value(depth + 1));
            space();
        } while (next(','));
        if (!next(']')) {
            throw wrong("a bracket is missing");
        }
        return list;
    }

    private String string() {
        StringBuilder out = new StringBuilder();
        at++;
        while (at < text.length()) {
            char letter = text.charAt(at++);
            if (letter == '"') {
                return out.toString();
            }
            if (letter < ' ') {
                break;
            }
            out.append(letter == '\\' ? escaped() : letter);
        }
        throw wrong("a text has no end");
    }

    private char escaped() {
        char letter = at < text.length() ? text.charAt(at++) : 0;
        switch (letter) {
            case '"':
            case '\\':
            case '/':
                return letter;
            case 'b':
                return '\b';
            case 'f':
                return '\f';
            case 'n':
                return '\n';
            case 'r':
                return '\r';
            case 't':
                return '\t';
            case 'u':
                return unicode();
            default:
                throw wrong("there is no such escape");
        }
    }

    private char unicode() {
        int code = 0;
        for (int digit = 0; digit < 4; digit++, at++) {
            int value = at < text.length() ? Character.digit(text.charAt(at), 16) : -1;
            if (value < 0) {
                throw wrong("an escape has four digits");
            }
            code = code * 16 + value;
        }
        return (char) code;
    }

    private Object number() {
        int begin = at;
        next('-');
        boolean isWhole = true;
        int digits = digits();
        if (digits == 0 || digits > 1 && text.charAt(at - digits) == '0') {
            at = begin;
            throw wrong("there is no value");
        }
        if (next('.')) {
            isWhole = false;
            digits = digits();
        }
        if (digits > 0 && (next('e') || next('E'))) {
            isWhole = false;
            if (!next('+')) {
                next('-');
            }
            digits = digits();
        }
        if (digits == 0) {
            throw wrong("a number has no end");
        }
        String number = text.substring(begin, at);
        if (!isWhole) {
            return Double.valueOf(number);
        }
        if (digits > DIGITS_MAX) {
            at = begin;
            throw wrong("a whole number has more than " + DIGITS_MAX + " digits");
        }
        return number.length() <= 18 ? (Object) Long.valueOf(number) : narrow(new BigInteger(number));
    }

    private static Object narrow(BigInteger number) {
        return number.bitLength() < 64 ? (Object) number.longValue() : number;
    }

    private int digits() {
        int begin = at;
        while (at < text.length() && text.charAt(at) >= '0' && text.charAt(at) <= '9') {
            at++;
        }
        return at - begin;
    }

    private Object word(String word, Object value) {
        if (!text.startsWith(word, at)) {
            throw wrong("there is no value");
        }
        at += word.length();
        return value;
    }

    private boolean next(char wanted) {
        boolean is = at < text.length() && text.charAt(at) == wanted;
        at += is ? 1 : 0;
        return is;
    }

    private void space() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
    }

    private IllegalArgumentException wrong(String why) {
        return new IllegalArgumentException("this is no JSON at character " + at + ": " + why);
    }

    /** The text of a value. Throws IllegalArgumentException where it is none of JSON. */
    public static String write(Object value) {
        StringBuilder out = new StringBuilder();
        write(value, out);
        return out.toString();
    }

    private static void write(Object value, StringBuilder out) {
        if (value instanceof String) {
            quote((String) value, out);
        } else if (value instanceof Double && (((Double) value).isInfinite() || ((Double) value).isNaN())) {
            out.append("null");
        } else if (value instanceof Number || value instanceof Boolean || value == null) {
            out.append(value);
        } else if (value instanceof List) {
            list((List<?>) value, out);
        } else if (value instanceof Map) {
            map((Map<?, ?>) value, out);
        } else {
            throw new IllegalArgumentException("a value of " + value.getClass().getName() + " is no JSON");
        }
    }

    private static void list(List<?> items, StringBuilder out) {
        char before = '[';
        for (Object item : items) {
            out.append(before);
            write(item, out);
            before = ',';
        }
        out.append(items.isEmpty() ? "[]" : "]");
    }

    private static void map(Map<?, ?> entries, StringBuilder out) {
        char before = '{';
        for (Map.Entry<?, ?> entry : entries.entrySet()) {
            out.append(before);
            quote((String) entry.getKey(), out);
            out.append(':');
            write(entry.getValue(), out);
            before = ',';
        }
        out.append(entries.isEmpty() ? "{}" : "}");
    }

    private static void quote(String text, StringBuilder out) {
        out.append('"');
        for (int at = 0; at < text.length(); at++) {
            char letter = text.charAt(at);
            if (letter == '"' || letter == '\\') {
                out.append('\\').append(letter);
            } else if (letter == '\n') {
                out.append("\\n");
            } else if (letter < ' ') {
                String digits = Integer.toHexString(letter);
                out.append("\\u").append("0000", 0, 4 - digits.length()).append(digits);
            } else {
                out.append(letter);
            }
        }
        out.append('"');
    }
}

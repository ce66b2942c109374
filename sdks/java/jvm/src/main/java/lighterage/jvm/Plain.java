package lighterage.jvm;

import java.util.List;
import java.util.Map;
import java.util.Set;
import lighterage.DoesNotTravel;
import lighterage.travel.Values;

/** Values of types that are known only when they are there. */
final class Plain {
    /** Of lists and maps in one another; what a frame has room for beside the call's own. */
    private static final int DEPTH_MAX = 100;
    private static final Set<Class<?>> AS_ITSELF = Set.of(Boolean.class, Long.class, Double.class, String.class);

    private Plain() {}

    /** The plain value of an object. Throws DoesNotTravel where it has none. */
    static Object lower(Object value) {
        if (value == null || value instanceof Boolean || value instanceof String || isNumber(value)) {
            return value;
        } else if (value instanceof double[]) {
            return Values.of((double[]) value);
        } else if (value instanceof float[]) {
            return Values.of((float[]) value);
        } else if (value instanceof long[]) {
            return Values.of((long[]) value);
        } else if (value instanceof int[]) {
            return Values.of((int[]) value);
        } else if (value instanceof byte[]) {
            return Values.of((byte[]) value);
        } else if (value instanceof Character) {
            return value.toString();
        } else if (value instanceof Enum) {
            return Values.of((Enum<?>) value);
        } else if (value instanceof List || value instanceof Map) {
            return inside(value, 1);
        }
        throw new DoesNotTravel("a variable of " + value.getClass().getName()
                + " does not travel in a lambda: mark a method with @Offload, or pass what it holds");
    }

    /**
     * The plain value of what stands in a list or map. There no type says what it is to become on the node, so only
     * what comes back as itself travels: an Integer would be a Long there.
     */
    private static Object inside(Object value, int depth) {
        if (depth > DEPTH_MAX) {
            throw new DoesNotTravel("lists and maps nest deeper than " + DEPTH_MAX + "; is there a cycle?");
        } else if (value == null || AS_ITSELF.contains(value.getClass())) {
            return value;
        } else if (value instanceof List) {
            return Values.list((List<?>) value, item -> inside(item, depth + 1));
        } else if (value instanceof Map) {
            return Values.map(named((Map<?, ?>) value), item -> inside(item, depth + 1));
        }
        throw new DoesNotTravel("a list or map that holds a " + value.getClass().getName() + " does not travel in a"
                + " lambda, because its type is not known there: let it hold Boolean, Long, Double, String, lists and"
                + " maps of these, or mark a method with @Offload");
    }

    private static Map<String, ?> named(Map<?, ?> entries) {
        for (Object key : entries.keySet()) {
            if (!(key instanceof String)) {
                throw new DoesNotTravel("a map travels whose keys are texts");
            }
        }
        @SuppressWarnings("unchecked")
        Map<String, ?> named = (Map<String, ?>) entries;
        return named;
    }

    private static boolean isNumber(Object value) {
        return value instanceof Integer
                || value instanceof Long
                || value instanceof Double
                || value instanceof Float
                || value instanceof Short
                || value instanceof Byte;
    }

    /** The value of a type as a class file describes it: `D`, `[D`, `Ljava/lang/String;`. */
    static Object lift(Object value, String type) {
        switch (type) {
            case "[D":
                return Values.asDoubles(value);
            case "[F":
                return Values.asFloats(value);
            case "[J":
                return Values.asLongs(value);
            case "[I":
                return Values.asInts(value);
            case "[B":
                return Values.asBytes(value);
            case "Ljava/lang/Integer;":
                return Values.asInt(value);
            case "Ljava/lang/Float;":
                return Values.asFloat(value);
            case "Ljava/lang/Short;":
                return Values.asShort(value);
            case "Ljava/lang/Byte;":
                return Values.asByte(value);
            case "Ljava/lang/Character;":
                return Values.asChar(value);
            case "Ljava/lang/Double;":
                return Values.asDouble(value);
            case "Ljava/lang/Long;":
                return Values.asLong(value);
            case "Ljava/lang/Boolean;":
                return Values.asBoolean(value);
            case "Ljava/lang/String;":
                return Values.asText(value);
            case "Ljava/util/List;":
                return Values.asList(value);
            case "Ljava/util/Map;":
                return Values.asMap(value);
            case "Ljava/lang/Void;":
                return null;
            default:
                return primitive(value, type);
        }
    }

    private static Object primitive(Object value, String type) {
        switch (type) {
            case "I":
                return Values.given(Values.asInt(value));
            case "F":
                return Values.given(Values.asFloat(value));
            case "S":
                return Values.given(Values.asShort(value));
            case "B":
                return Values.given(Values.asByte(value));
            case "C":
                return Values.given(Values.asChar(value));
            case "D":
                return Values.given(Values.asDouble(value));
            case "J":
                return Values.given(Values.asLong(value));
            case "Z":
                return Values.given(Values.asBoolean(value));
            default:
                throw new DoesNotTravel("a lambda that returns " + type + " does not travel: give its result as "
                        + "numbers, texts, arrays, lists or maps, or mark a method with @Offload");
        }
    }
}

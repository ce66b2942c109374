package lighterage.call;

import java.util.Arrays;
import java.util.Collection;
import java.util.Iterator;
import java.util.Map;

/** How large a call is: the bytes that its arguments take on the wire, and the number that its work may grow with. */
final class Measure {
    /** Arguments below this are few enough that a number among them says more about the work. */
    private static final double BULK_BYTES = 512;
    /** Items of a list that are looked at; the rest is taken to be like them. */
    private static final int SAMPLED = 8;
    /** Bytes of a call beside its arguments. */
    private static final double EMPTY_BYTES = 128;
    /** A number beyond this says no more about the work. */
    private static final double NUMBER_MAX = 1e18;
    private static final double NUMBER_BYTES = 9;
    /** Bytes of what is of another kind. */
    private static final double OTHER_BYTES = 64;
    private static final int DEPTH_MAX = 8;

    /** What the work grows with, 1 or more. */
    final double size;
    final double bytes;

    private Measure(double size, double bytes) {
        this.size = size;
        this.bytes = bytes;
    }

    /** Of these arguments. */
    static Measure of(Object[] arguments) {
        double total = EMPTY_BYTES;
        double number = 0.0;
        for (Object value : arguments) {
            total += bytes(value, 0);
            if (value instanceof Number) {
                number = Math.max(number, Math.abs(((Number) value).doubleValue()));
            }
        }
        return new Measure(total > BULK_BYTES ? total : Math.max(Math.min(number, NUMBER_MAX), 1.0), total);
    }

    private static double bytes(Object value, int depth) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return NUMBER_BYTES;
        } else if (value instanceof CharSequence) {
            return 5 + ((CharSequence) value).length();
        } else if (value instanceof byte[]) {
            return 5 + ((byte[]) value).length;
        } else if (value.getClass().isArray()) {
            return array(value, depth);
        } else if (depth >= DEPTH_MAX) {
            return OTHER_BYTES;
        } else if (value instanceof Collection) {
            return many((Collection<?>) value, depth);
        } else if (value instanceof Map) {
            return many(((Map<?, ?>) value).keySet(), depth) + many(((Map<?, ?>) value).values(), depth);
        }
        return OTHER_BYTES;
    }

    private static double array(Object array, int depth) {
        if (array instanceof double[]) {
            return OTHER_BYTES + 8.0 * ((double[]) array).length;
        } else if (array instanceof long[]) {
            return OTHER_BYTES + 8.0 * ((long[]) array).length;
        } else if (array instanceof float[]) {
            return OTHER_BYTES + 4.0 * ((float[]) array).length;
        } else if (array instanceof int[]) {
            return OTHER_BYTES + 4.0 * ((int[]) array).length;
        } else if (array instanceof Object[] && depth < DEPTH_MAX) {
            return many(Arrays.asList((Object[]) array), depth);
        }
        return OTHER_BYTES;
    }

    private static double many(Collection<?> values, int depth) {
        double seen = 0.0;
        int looked = 0;
        for (Iterator<?> each = values.iterator(); each.hasNext() && looked < SAMPLED; looked++) {
            seen += bytes(each.next(), depth + 1);
        }
        return looked == 0 ? 5 : 5 + seen * values.size() / looked;
    }
}

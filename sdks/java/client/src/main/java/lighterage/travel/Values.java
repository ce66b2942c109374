package lighterage.travel;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import lighterage.frame.Array;
import lighterage.frame.Buffer;

/**
 * Between Java's types and the plain values of a frame, as generated tables write it out.
 *
 * <p>The names on the way to a node are those of the types; on the way back `asX`. What is not of the type that is
 * expected is an IllegalArgumentException.
 */
public final class Values {
    /** Bytes from which on they stand beside the typed part. */
    private static final int BESIDE_BYTES = 4_096;

    private Values() {}

    /** One value on its way. */
    public interface Each {
        /** What it becomes. */
        Object of(Object value);
    }

    /** Numbers whose bytes travel as they are. */
    public static Object of(double[] numbers) {
        if (numbers == null) {
            return null;
        }
        ByteBuffer data = room(8L * numbers.length);
        data.asDoubleBuffer().put(numbers);
        return Array.of('f', 8, data);
    }

    /** Numbers whose bytes travel as they are. */
    public static Object of(float[] numbers) {
        if (numbers == null) {
            return null;
        }
        ByteBuffer data = room(4L * numbers.length);
        data.asFloatBuffer().put(numbers);
        return Array.of('f', 4, data);
    }

    /** Numbers whose bytes travel as they are. */
    public static Object of(long[] numbers) {
        if (numbers == null) {
            return null;
        }
        ByteBuffer data = room(8L * numbers.length);
        data.asLongBuffer().put(numbers);
        return Array.of('i', 8, data);
    }

    /** Numbers whose bytes travel as they are. */
    public static Object of(int[] numbers) {
        if (numbers == null) {
            return null;
        }
        ByteBuffer data = room(4L * numbers.length);
        data.asIntBuffer().put(numbers);
        return Array.of('i', 4, data);
    }

    /** Bytes; many stand beside the typed part of the frame. */
    public static Object of(byte[] bytes) {
        return bytes == null || bytes.length < BESIDE_BYTES ? bytes : new Buffer(bytes);
    }

    /** A character, as a text of one. */
    public static Object of(char letter) {
        return String.valueOf(letter);
    }

    /** A character, as a text of one; null stays. */
    public static Object of(Character letter) {
        return letter == null ? null : letter.toString();
    }

    /** The constant's name. */
    public static Object of(Enum<?> constant) {
        return constant == null ? null : constant.name();
    }

    /** Each element; null stays. */
    public static Object list(Iterable<?> items, Each each) {
        if (items == null) {
            return null;
        }
        List<Object> list = new ArrayList<>();
        for (Object item : items) {
            list.add(each.of(item));
        }
        return list;
    }

    /** Each value of a map by its key; null stays. */
    public static Object map(Map<String, ?> entries, Each each) {
        if (entries == null) {
            return null;
        }
        Map<String, Object> map = new LinkedHashMap<>();
        for (Map.Entry<String, ?> entry : entries.entrySet()) {
            map.put(entry.getKey(), each.of(entry.getValue()));
        }
        return map;
    }

    /** The elements of a list. */
    public static List<Object> asList(Object value, Each each) {
        if (value == null) {
            return null;
        }
        List<Object> list = new ArrayList<>();
        for (Object item : expect(List.class, value)) {
            list.add(each.of(item));
        }
        return list;
    }

    /** The values of a map. */
    public static Map<String, Object> asMap(Object value, Each each) {
        if (value == null) {
            return null;
        }
        Map<String, Object> map = new LinkedHashMap<>();
        for (Map.Entry<?, ?> entry : ((Map<?, ?>) expect(Map.class, value)).entrySet()) {
            map.put((String) entry.getKey(), each.of(entry.getValue()));
        }
        return map;
    }

    /** A field of an object that travelled as a map. */
    public static Object field(Object value, String name) {
        Map<?, ?> fields = expect(Map.class, value);
        if (!fields.containsKey(name)) {
            throw new IllegalArgumentException("the field " + name + " is missing");
        }
        return fields.get(name);
    }

    /** An object as a map: names and values by turns. */
    public static Object object(Object... fields) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int at = 0; at < fields.length; at += 2) {
            map.put((String) fields[at], fields[at + 1]);
        }
        return Collections.unmodifiableMap(map);
    }

    /** A value of a type that has no null. */
    public static <T> T given(T value) {
        if (value == null) {
            throw new IllegalArgumentException("nothing where a value is expected");
        }
        return value;
    }

    /** A list of whatever it holds; null stays. */
    public static List<?> asList(Object value) {
        return value == null ? null : expect(List.class, value);
    }

    /** A map of whatever it holds; null stays. */
    public static Map<?, ?> asMap(Object value) {
        return value == null ? null : expect(Map.class, value);
    }

    /** A text; null stays. */
    public static String asText(Object value) {
        return value == null ? null : expect(String.class, value);
    }

    /** The constant of this name; null stays. */
    public static <T extends Enum<T>> T asEnum(Object value, Class<T> kind) {
        return value == null ? null : Enum.valueOf(kind, expect(String.class, value));
    }

    /** A truth value; null stays. */
    public static Boolean asBoolean(Object value) {
        return value == null ? null : expect(Boolean.class, value);
    }

    /** A character; null stays. */
    public static Character asChar(Object value) {
        String text = asText(value);
        if (text != null && text.length() != 1) {
            throw new IllegalArgumentException("a character of " + text.length() + " letters");
        }
        return text == null ? null : text.charAt(0);
    }

    /** A whole number between two; null stays. */
    private static Long whole(Object value, long least, long most) {
        Long number = value == null ? null : expect(Long.class, value);
        if (number != null && (number < least || number > most)) {
            throw new IllegalArgumentException(number + " does not fit");
        }
        return number;
    }

    /** A whole number; null stays. */
    public static Long asLong(Object value) {
        return whole(value, Long.MIN_VALUE, Long.MAX_VALUE);
    }

    /** A whole number; null stays. */
    public static Integer asInt(Object value) {
        Long number = whole(value, Integer.MIN_VALUE, Integer.MAX_VALUE);
        return number == null ? null : Integer.valueOf(number.intValue());
    }

    /** A whole number; null stays. */
    public static Short asShort(Object value) {
        Long number = whole(value, Short.MIN_VALUE, Short.MAX_VALUE);
        return number == null ? null : Short.valueOf(number.shortValue());
    }

    /** A whole number; null stays. */
    public static Byte asByte(Object value) {
        Long number = whole(value, Byte.MIN_VALUE, Byte.MAX_VALUE);
        return number == null ? null : Byte.valueOf(number.byteValue());
    }

    /** A number; null stays. */
    public static Double asDouble(Object value) {
        return value == null ? null : Double.valueOf(expect(Number.class, value).doubleValue());
    }

    /** A number; null stays. */
    public static Float asFloat(Object value) {
        return value == null ? null : Float.valueOf(expect(Number.class, value).floatValue());
    }

    /** Numbers. */
    public static double[] asDoubles(Object value) {
        ByteBuffer data = numbers(value, 'f', 8);
        double[] numbers = data == null ? null : new double[data.remaining() / 8];
        if (data != null) {
            data.asDoubleBuffer().get(numbers);
        }
        return numbers;
    }

    /** Numbers. */
    public static float[] asFloats(Object value) {
        ByteBuffer data = numbers(value, 'f', 4);
        float[] numbers = data == null ? null : new float[data.remaining() / 4];
        if (data != null) {
            data.asFloatBuffer().get(numbers);
        }
        return numbers;
    }

    /** Numbers. */
    public static long[] asLongs(Object value) {
        ByteBuffer data = numbers(value, 'i', 8);
        long[] numbers = data == null ? null : new long[data.remaining() / 8];
        if (data != null) {
            data.asLongBuffer().get(numbers);
        }
        return numbers;
    }

    /** Numbers. */
    public static int[] asInts(Object value) {
        ByteBuffer data = numbers(value, 'i', 4);
        int[] numbers = data == null ? null : new int[data.remaining() / 4];
        if (data != null) {
            data.asIntBuffer().get(numbers);
        }
        return numbers;
    }

    /** Bytes. */
    public static byte[] asBytes(Object value) {
        if (value instanceof Buffer) {
            return ((Buffer) value).copy();
        }
        return value == null ? null : expect(byte[].class, value);
    }

    private static ByteBuffer numbers(Object value, char type, int itemBytes) {
        if (value == null) {
            return null;
        }
        Array array = expect(Array.class, value);
        if (array.type() != type || array.itemBytes() != itemBytes || array.shape().length != 1) {
            String found = "" + array.type() + 8 * array.itemBytes() + " of " + array.shape().length + " axes";
            throw new IllegalArgumentException("an array of " + found + ", not of " + type + 8 * itemBytes);
        }
        ByteBuffer data = array.data().duplicate();
        return data.order(array.order() == '>' ? ByteOrder.BIG_ENDIAN : ByteOrder.LITTLE_ENDIAN);
    }

    private static ByteBuffer room(long bytes) {
        if (bytes > Integer.MAX_VALUE) {
            throw new IllegalArgumentException("an array of " + bytes + " bytes is too large for a frame in Java");
        }
        return ByteBuffer.allocate((int) bytes).order(ByteOrder.LITTLE_ENDIAN);
    }

    private static <T> T expect(Class<T> kind, Object value) {
        if (kind.isInstance(value)) {
            return kind.cast(value);
        }
        String found = value == null ? "nothing" : value.getClass().getSimpleName();
        throw new IllegalArgumentException(found + " where " + kind.getSimpleName() + " is expected");
    }
}

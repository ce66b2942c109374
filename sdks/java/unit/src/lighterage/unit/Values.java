package lighterage.unit;

import java.lang.reflect.Array;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.RecordComponent;
import java.lang.reflect.Type;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import lighterage.frame.Buffer;
import lighterage.frame.Tagged;
import lighterage.json.Json;

/**
 * Between plain values and objects: `lift` makes an object of a class out of a value, `lower` a value out of an object.
 *
 * <p>Plain values are those of JSON and of the frame. A record is rebuilt by its constructor, another object by the one
 * without parameters and its fields, of which every one that is given must be there.
 */
final class Values {
    private Values() {}

    /** The object of this type that a plain value stands for. Throws IllegalArgumentException where there is none. */
    static Object lift(Object value, Type type) {
        Class<?> kind = kind(type);
        if (value == null) {
            if (kind.isPrimitive()) {
                throw wrong(value, kind);
            }
            return null;
        }
        if (value instanceof Number number && (kind.isPrimitive() || Number.class.isAssignableFrom(kind))) {
            return number(number, kind);
        }
        if (value instanceof Tagged tagged) {
            throw new IllegalArgumentException("a value tagged \"" + tagged.name() + "\" has no type in Java");
        }
        if (kind == byte[].class) {
            return bytes(value);
        }
        if (kind.isArray()) {
            return array(value, kind.getComponentType());
        }
        if (kind == boolean.class && value instanceof Boolean) {
            return value;
        }
        if ((kind == char.class || kind == Character.class) && value instanceof String text && text.length() == 1) {
            return text.charAt(0);
        }
        if (kind.isEnum() && value instanceof String name) {
            return constant(kind, name);
        }
        if (value instanceof List<?> items && kind.isAssignableFrom(ArrayList.class)) {
            return lifted(items, argument(type, 0), new ArrayList<>());
        }
        if (value instanceof List<?> items && kind == Set.class) {
            return lifted(items, argument(type, 0), new LinkedHashSet<>());
        }
        if (value instanceof Map<?, ?> entries && kind.isAssignableFrom(LinkedHashMap.class)) {
            Map<Object, Object> map = new LinkedHashMap<>();
            // No lambda: a virtual machine that has just begun takes milliseconds for its first.
            for (Map.Entry<?, ?> entry : entries.entrySet()) {
                map.put(entry.getKey(), lift(entry.getValue(), argument(type, 1)));
            }
            return map;
        }
        if (kind.isInstance(value)) {
            return value;
        }
        if (value instanceof Map<?, ?> fields) {
            return object(fields, kind);
        }
        throw wrong(value, kind);
    }

    private static Collection<Object> lifted(List<?> items, Type type, Collection<Object> into) {
        for (Object item : items) {
            into.add(lift(item, type));
        }
        return into;
    }

    private static Object number(Number value, Class<?> kind) {
        // The usual numbers need no arithmetic of any length.
        if (value instanceof Long && (kind == long.class || kind == Long.class)) {
            return value;
        }
        if (value instanceof Long whole && (kind == int.class || kind == Integer.class) && whole == whole.intValue()) {
            return whole.intValue();
        }
        try {
            if (kind == double.class || kind == Double.class) {
                return value.doubleValue();
            } else if (kind == float.class || kind == Float.class) {
                return value.floatValue();
            } else if (kind == BigDecimal.class) {
                return new BigDecimal(value.toString());
            }
            BigInteger whole = new BigDecimal(value.toString()).toBigIntegerExact();
            if (kind == long.class || kind == Long.class) {
                return whole.longValueExact();
            } else if (kind == int.class || kind == Integer.class) {
                return whole.intValueExact();
            } else if (kind == short.class || kind == Short.class) {
                return whole.shortValueExact();
            } else if (kind == byte.class || kind == Byte.class) {
                return whole.byteValueExact();
            } else if (kind == BigInteger.class) {
                return whole;
            } else if (kind == Number.class) {
                return value;
            }
        } catch (ArithmeticException | NumberFormatException beyond) {
            // It has a fraction, or is too large, or is none at all.
        }
        throw wrong(value, kind);
    }

    private static byte[] bytes(Object value) {
        if (value instanceof byte[] bytes) {
            return bytes;
        }
        if (value instanceof Buffer buffer) {
            return buffer.copy();
        }
        if (value instanceof String text) {
            return Base64.getDecoder().decode(text);
        }
        throw wrong(value, byte[].class);
    }

    private static Object array(Object value, Class<?> kind) {
        if (value instanceof lighterage.frame.Array array) {
            return Arrays.of(array, kind);
        }
        if (!(value instanceof List<?> items)) {
            throw wrong(value, kind.arrayType());
        }
        Object array = Array.newInstance(kind, items.size());
        int index = 0;
        for (Object item : items) {
            Array.set(array, index++, lift(item, kind));
        }
        return array;
    }

    private static Object constant(Class<?> kind, String name) {
        for (Object constant : kind.getEnumConstants()) {
            if (((Enum<?>) constant).name().equals(name)) {
                return constant;
            }
        }
        throw new IllegalArgumentException("there is no " + name + " in " + kind.getName());
    }

    /** An object of this class, with these fields. */
    static Object object(Map<?, ?> fields, Class<?> kind) {
        Map<Object, Object> left = new LinkedHashMap<>(fields);
        try {
            Object object = kind.isRecord() ? record(left, kind) : bean(left, kind);
            if (!left.isEmpty()) {
                throw new IllegalArgumentException(kind.getName() + " has no field " + left.keySet().iterator().next());
            }
            return object;
        } catch (InvocationTargetException thrown) {
            throw new IllegalArgumentException(kind.getName() + " cannot be made of them", thrown.getCause());
        } catch (ReflectiveOperationException error) {
            throw new IllegalArgumentException(kind.getName() + " is not made of fields: " + error.getMessage(), error);
        }
    }

    private static Object record(Map<Object, Object> left, Class<?> kind) throws ReflectiveOperationException {
        RecordComponent[] components = kind.getRecordComponents();
        Class<?>[] types = new Class<?>[components.length];
        Object[] values = new Object[components.length];
        for (int index = 0; index < components.length; index++) {
            String name = components[index].getName();
            if (!left.containsKey(name)) {
                throw new IllegalArgumentException(kind.getName() + " has a field " + name + ", which is not given");
            }
            types[index] = components[index].getType();
            values[index] = lift(left.remove(name), components[index].getGenericType());
        }
        Constructor<?> constructor = kind.getDeclaredConstructor(types);
        constructor.setAccessible(true);
        return constructor.newInstance(values);
    }

    private static Object bean(Map<Object, Object> left, Class<?> kind) throws ReflectiveOperationException {
        Constructor<?> constructor = kind.getDeclaredConstructor();
        constructor.setAccessible(true);
        Object object = constructor.newInstance();
        for (Field field : fields(kind)) {
            if (left.containsKey(field.getName())) {
                field.set(object, lift(left.remove(field.getName()), field.getGenericType()));
            }
        }
        return object;
    }

    /** Those of an object, its class's own before those of the classes above. */
    private static List<Field> fields(Class<?> kind) {
        List<Field> fields = new ArrayList<>();
        for (Class<?> above = kind; above != null && above != Object.class; above = above.getSuperclass()) {
            for (Field field : above.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers()) && !field.isSynthetic()) {
                    field.setAccessible(true);
                    fields.add(field);
                }
            }
        }
        return fields;
    }

    private static Class<?> kind(Type type) {
        if (type instanceof Class<?> kind) {
            return kind;
        }
        return type instanceof ParameterizedType named ? (Class<?>) named.getRawType() : Object.class;
    }

    private static Type argument(Type type, int index) {
        return type instanceof ParameterizedType named ? named.getActualTypeArguments()[index] : Object.class;
    }

    private static IllegalArgumentException wrong(Object value, Class<?> kind) {
        String words = String.valueOf(value);
        String cut = words.length() > 80 ? words.substring(0, 80) + "…" : words;
        return new IllegalArgumentException(cut + " is no " + kind.getTypeName());
    }

    /** The plain value of an object; `framed`: arrays of numbers are arrays of the frame. */
    static Object lower(Object object, boolean framed) {
        return lower(object, framed, 1);
    }

    private static Object lower(Object object, boolean framed, int depth) {
        if (depth > Json.DEPTH_MAX) {
            String deeper = "the result is deeper than " + Json.DEPTH_MAX;
            throw new IllegalArgumentException(deeper + ": does it hold itself?");
        }
        if (object == null || object instanceof Boolean || object instanceof String) {
            return object;
        } else if (object instanceof byte[] bytes) {
            return framed ? bytes : Base64.getEncoder().encodeToString(bytes);
        } else if (object instanceof Number number) {
            return lowered(number, framed);
        } else if (object instanceof Character || object instanceof CharSequence) {
            return object.toString();
        } else if (object instanceof Enum<?> constant) {
            return constant.name();
        } else if (object instanceof Map<?, ?> entries) {
            Map<String, Object> map = new LinkedHashMap<>();
            for (Map.Entry<?, ?> entry : entries.entrySet()) {
                map.put(String.valueOf(entry.getKey()), lower(entry.getValue(), framed, depth + 1));
            }
            return map;
        } else if (object instanceof Iterable<?> items) {
            List<Object> list = new ArrayList<>();
            for (Object item : items) {
                list.add(lower(item, framed, depth + 1));
            }
            return list;
        } else if (object.getClass().isArray()) {
            return elements(object, framed, depth);
        } else if (object.getClass().getName().startsWith("java.")) {
            return object.toString();
        }
        return properties(object, framed, depth);
    }

    private static Object lowered(Number number, boolean framed) {
        if (number instanceof Double || number instanceof Long) {
            return number;
        } else if (number instanceof Integer || number instanceof Short || number instanceof Byte) {
            return number.longValue();
        } else if (number instanceof Float) {
            return Double.valueOf(number.toString());
        }
        return framed ? (Object) number.toString() : number;
    }

    private static Object elements(Object array, boolean framed, int depth) {
        if (framed && array.getClass().getComponentType().isPrimitive() && Arrays.isOfNumbers(array)) {
            return Arrays.lower(array);
        }
        List<Object> list = new ArrayList<>();
        for (int index = 0; index < Array.getLength(array); index++) {
            list.add(lower(Array.get(array, index), framed, depth + 1));
        }
        return list;
    }

    private static Object properties(Object object, boolean framed, int depth) {
        Map<String, Object> map = new LinkedHashMap<>();
        try {
            for (Field field : fields(object.getClass())) {
                map.putIfAbsent(field.getName(), lower(field.get(object), framed, depth + 1));
            }
        } catch (ReflectiveOperationException error) {
            throw new IllegalArgumentException(object.getClass().getName() + " cannot be read: " + error.getMessage());
        }
        return map;
    }

    /** Arrays of numbers, whose bytes travel as they are. */
    private static final class Arrays {
        private Arrays() {}

        static boolean isOfNumbers(Object array) {
            return array instanceof double[]
                    || array instanceof float[]
                    || array instanceof long[]
                    || array instanceof int[];
        }

        static lighterage.frame.Array lower(Object array) {
            int bytes = array instanceof double[] || array instanceof long[] ? 8 : 4;
            ByteBuffer data = ByteBuffer.allocate(Math.multiplyExact(Array.getLength(array), bytes));
            data.order(ByteOrder.LITTLE_ENDIAN);
            if (array instanceof double[] numbers) {
                data.asDoubleBuffer().put(numbers);
            } else if (array instanceof float[] numbers) {
                data.asFloatBuffer().put(numbers);
            } else if (array instanceof long[] numbers) {
                data.asLongBuffer().put(numbers);
            } else {
                data.asIntBuffer().put((int[]) array);
            }
            boolean isFloat = array instanceof double[] || array instanceof float[];
            return lighterage.frame.Array.of(isFloat ? 'f' : 'i', bytes, data);
        }

        /** The elements of an array of one axis, in an array of Java that holds just these. */
        static Object of(lighterage.frame.Array array, Class<?> kind) {
            ByteBuffer data = array.data().duplicate();
            data.order(array.order() == '>' ? ByteOrder.BIG_ENDIAN : ByteOrder.LITTLE_ENDIAN);
            int count = data.remaining() / array.itemBytes();
            if (array.type() == 'f' && array.itemBytes() == 8 && kind == double.class) {
                double[] numbers = new double[count];
                data.asDoubleBuffer().get(numbers);
                return numbers;
            } else if (array.type() == 'f' && array.itemBytes() == 4 && kind == float.class) {
                float[] numbers = new float[count];
                data.asFloatBuffer().get(numbers);
                return numbers;
            } else if (array.type() == 'i' && array.itemBytes() == 8 && kind == long.class) {
                long[] numbers = new long[count];
                data.asLongBuffer().get(numbers);
                return numbers;
            } else if (array.type() == 'i' && array.itemBytes() == 4 && kind == int.class) {
                int[] numbers = new int[count];
                data.asIntBuffer().get(numbers);
                return numbers;
            }
            String found = array.type() + Integer.toString(8 * array.itemBytes());
            throw new IllegalArgumentException("an array of " + found + " is no " + kind.getName() + "[]");
        }
    }
}

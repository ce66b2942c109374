package lighterage.frame;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32;

/**
 * Writes frames: the typed part first, in memory that grows, then all of it at its place.
 *
 * <p>What no reader reads is not written: it is an IllegalArgumentException that says why.
 */
final class Writer {
    private byte[] meta = new byte[256];
    private int length;
    private long values;
    private final List<ByteBuffer> buffers = new ArrayList<>();

    static ByteBuffer write(Frame frame, boolean bulk) {
        Writer writer = new Writer();
        writer.value(frame.body(), 1);
        return writer.assemble(frame, bulk);
    }

    private ByteBuffer assemble(Frame frame, boolean bulk) {
        int front = sum(Frame.HEADER_BYTES + Frame.ENTRY_BYTES * buffers.size(), length);
        long total = front;
        for (ByteBuffer buffer : buffers) {
            total = (long) Frame.aligned(total) + buffer.remaining();
        }
        ByteBuffer out = ByteBuffer.allocate(sum(total, 0)).order(ByteOrder.LITTLE_ENDIAN);
        out.put(Frame.MAGIC).put((byte) Frame.VERSION).put((byte) frame.kind());
        out.putShort((short) (bulk ? Frame.HAS_BULK : 0));
        out.putLong(total).putLong(frame.id()).putInt(length).putInt(buffers.size());
        out.position(Frame.HEADER_BYTES);
        for (ByteBuffer buffer : buffers) {
            out.putLong(buffer.remaining()).putLong(0);
        }
        out.put(meta, 0, length);
        CRC32 checksum = new CRC32();
        for (ByteBuffer buffer : buffers) {
            if (bulk) {
                Frame.update(checksum, buffer);
            }
            out.position(Frame.aligned(out.position()));
            out.put(buffer.duplicate());
        }
        out.putInt(36, bulk ? (int) checksum.getValue() : 0);
        out.putInt(32, checksum(out.array(), Frame.HEADER_BYTES, front));
        out.putInt(60, checksum(out.array(), 0, 60));
        out.rewind();
        return out;
    }

    private static int checksum(byte[] bytes, int from, int to) {
        CRC32 checksum = new CRC32();
        checksum.update(bytes, from, to - from);
        return (int) checksum.getValue();
    }

    private void value(Object value, int depth) {
        if (depth > Limits.CALL.depth) {
            throw new IllegalArgumentException("values nest deeper than " + Limits.CALL.depth + "; is there a cycle?");
        }
        if (value == null) {
            tag(Frame.NULL);
        } else if (value instanceof Boolean) {
            tag((Boolean) value ? Frame.TRUE : Frame.FALSE);
        } else if (value instanceof Double || value instanceof Float) {
            tag(Frame.F64);
            number(Double.doubleToRawLongBits(((Number) value).doubleValue()), 8);
        } else if (isWhole(value)) {
            tag(Frame.I64);
            number(((Number) value).longValue(), 8);
        } else if (value instanceof String) {
            tag(Frame.STR);
            text((String) value);
        } else if (value instanceof byte[]) {
            tag(Frame.BYTES);
            bytes((byte[]) value);
        } else if (value instanceof List) {
            list((List<?>) value, depth);
        } else if (value instanceof Map) {
            map((Map<?, ?>) value, depth);
        } else if (value instanceof Tagged) {
            tag(Frame.TAGGED);
            text(((Tagged) value).name());
            announce(1);
            value(((Tagged) value).value(), depth + 1);
        } else if (value instanceof Buffer) {
            tag(Frame.BUFFER);
            buffer(((Buffer) value).bytes());
        } else if (value instanceof Array) {
            array((Array) value);
        } else {
            String name = value.getClass().getName();
            throw new IllegalArgumentException("a value of " + name + " does not fit into a frame");
        }
    }

    private static boolean isWhole(Object value) {
        return value instanceof Long || value instanceof Integer || value instanceof Short || value instanceof Byte;
    }

    private void list(List<?> items, int depth) {
        tag(Frame.LIST);
        announce(items.size());
        number(items.size(), 4);
        for (Object item : items) {
            value(item, depth + 1);
        }
    }

    private void map(Map<?, ?> entries, int depth) {
        tag(Frame.MAP);
        announce(entries.size());
        number(entries.size(), 4);
        for (Map.Entry<?, ?> entry : entries.entrySet()) {
            text((String) entry.getKey());
            value(entry.getValue(), depth + 1);
        }
    }

    private void array(Array array) {
        tag(Frame.ARRAY);
        buffer(array.data());
        number(array.type(), 1);
        number(array.order(), 1);
        number(array.layout(), 1);
        number(array.shape().length, 1);
        number(array.itemBytes(), 4);
        for (long axis : array.shape()) {
            number(axis, 8);
        }
        byte[] unit = array.unit().getBytes(StandardCharsets.US_ASCII);
        number(unit.length, 1);
        put(unit);
    }

    /** Counts values that are inside another. */
    private void announce(long count) {
        values += count;
        if (values > Limits.CALL.values) {
            throw new IllegalArgumentException("a value holds more than " + Limits.CALL.values + " others");
        }
    }

    private void buffer(ByteBuffer bytes) {
        if (buffers.size() >= Limits.CALL.buffers) {
            throw new IllegalArgumentException("a value holds more than " + Limits.CALL.buffers + " arrays");
        }
        number(buffers.size(), 4);
        buffers.add(bytes.duplicate());
    }

    private void tag(int tag) {
        number(tag, 1);
    }

    private void text(String text) {
        bytes(text.getBytes(StandardCharsets.UTF_8));
    }

    private void bytes(byte[] bytes) {
        number(bytes.length, 4);
        put(bytes);
    }

    /** The least significant byte first. */
    private void number(long value, int bytes) {
        reserve(bytes);
        for (int at = 0; at < bytes; at++) {
            meta[length++] = (byte) (value >>> 8 * at);
        }
    }

    private void put(byte[] bytes) {
        reserve(bytes.length);
        System.arraycopy(bytes, 0, meta, length, bytes.length);
        length += bytes.length;
    }

    private void reserve(int more) {
        int wanted = sum(length, more);
        if (wanted > meta.length) {
            meta = Arrays.copyOf(meta, Math.max(meta.length * 2, wanted));
        }
    }

    private static int sum(long bytes, long more) {
        if (bytes + more > Integer.MAX_VALUE) {
            throw new IllegalArgumentException("a frame of " + (bytes + more) + " bytes is too large for Java");
        }
        return (int) (bytes + more);
    }
}

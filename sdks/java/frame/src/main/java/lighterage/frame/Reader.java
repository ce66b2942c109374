package lighterage.frame;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.zip.CRC32;

/** Reads frames: the checks of `contracts/frame.md`, in its order and with its words. */
final class Reader {
    private static final String ITEMS = "biufcmMSUV";
    private static final int RANK_MAX = 64;
    private static final int UNIT_BYTES_MAX = 16;
    private static final char REPLACEMENT = '\uFFFD';
    /** Items for which room is made before they have been read. */
    private static final int ROOM = 1_024;

    private final ByteBuffer bytes;
    private final int end;
    private final ByteBuffer[] buffers;
    private final Limits limits;
    private int at;
    private long valuesLeft;

    private Reader(ByteBuffer bytes, int at, int end, ByteBuffer[] buffers, Limits limits) {
        this.bytes = bytes;
        this.at = at;
        this.end = end;
        this.buffers = buffers;
        this.limits = limits;
        this.valuesLeft = limits.values();
    }

    /** Steps 1 and 2; the total bytes of the frame. */
    static long header(ByteBuffer frame, Limits limits) throws FrameException {
        ByteBuffer bytes = frame.duplicate().order(ByteOrder.LITTLE_ENDIAN);
        require(bytes.limit() >= Frame.HEADER_BYTES, "truncated");
        for (int at = 0; at < Frame.MAGIC.length; at++) {
            require(bytes.get(at) == Frame.MAGIC[at], "magic");
        }
        require(bytes.get(4) == Frame.VERSION, "version");
        require(checksum(bytes, 0, 60) == bytes.getInt(60), "header-checksum");
        int kind = bytes.get(5) & 0xFF;
        require(kind >= Frame.CALL && kind <= Frame.EVENT, "kind");
        int flags = bytes.getShort(6) & 0xFFFF;
        require((flags & ~Frame.HAS_BULK) == 0, "flags");
        require(isZero(bytes, 40, 60) && (flags == Frame.HAS_BULK || bytes.getInt(36) == 0), "reserved");
        long total = bytes.getLong(8);
        long meta = bytes.getInt(24) & 0xFFFF_FFFFL;
        long count = bytes.getInt(28) & 0xFFFF_FFFFL;
        require(Long.compareUnsigned(total, limits.totalBytes()) <= 0, "total-too-large");
        require(meta <= limits.metaBytes(), "meta-too-large");
        require(count <= limits.buffers(), "too-many-buffers");
        require(Frame.HEADER_BYTES + Frame.ENTRY_BYTES * count + meta <= total, "length");
        return total;
    }

    static Frame read(ByteBuffer frame, Limits limits) throws FrameException {
        long total = header(frame, limits);
        ByteBuffer bytes = frame.duplicate().order(ByteOrder.LITTLE_ENDIAN);
        require(bytes.limit() >= total, "truncated");
        require(bytes.limit() == total, "trailing");
        int table = Frame.HEADER_BYTES + Frame.ENTRY_BYTES * bytes.getInt(28);
        int front = table + bytes.getInt(24);
        require(checksum(bytes, Frame.HEADER_BYTES, front) == bytes.getInt(32), "front-checksum");
        ByteBuffer[] buffers = buffers(bytes, front);
        if (bytes.getShort(6) == Frame.HAS_BULK) {
            CRC32 bulk = new CRC32();
            for (ByteBuffer buffer : buffers) {
                Frame.update(bulk, buffer);
            }
            require((int) bulk.getValue() == bytes.getInt(36), "bulk-checksum");
        }
        Reader reader = new Reader(bytes, table, front, buffers, limits);
        reader.announce(1, 0);
        Object body = reader.value(1);
        require(reader.at == front, "meta-trailing");
        return new Frame(bytes.get(5), bytes.getLong(16), body);
    }

    /** Step 5: where each buffer lies. */
    private static ByteBuffer[] buffers(ByteBuffer bytes, int front) throws FrameException {
        int total = bytes.limit();
        ByteBuffer[] buffers = new ByteBuffer[bytes.getInt(28)];
        long place = front;
        for (int index = 0; index < buffers.length; index++) {
            int entry = Frame.HEADER_BYTES + Frame.ENTRY_BYTES * index;
            require(bytes.get(entry + 8) == 0, "codec");
            require(isZero(bytes, entry + 9, entry + Frame.ENTRY_BYTES), "reserved");
            long length = bytes.getLong(entry);
            place = place + Frame.ALIGNMENT - 1 & -Frame.ALIGNMENT;
            require(place <= total && length >= 0 && length <= total - place, "length");
            buffers[index] = Frame.part(bytes, (int) place, (int) (place + length));
            place += length;
        }
        require(place == total, "length");
        int behind = front;
        for (ByteBuffer buffer : buffers) {
            int begin = Frame.aligned(behind);
            require(isZero(bytes, behind, begin), "padding");
            behind = begin + buffer.limit();
        }
        return buffers;
    }

    private Object value(int depth) throws FrameException {
        require(depth <= limits.depth(), "too-deep");
        int tag = byteNext();
        switch (tag) {
            case Frame.NULL:
                return null;
            case Frame.FALSE:
                return false;
            case Frame.TRUE:
                return true;
            case Frame.I64:
                return longNext();
            case Frame.F64:
                return Double.longBitsToDouble(longNext());
            case Frame.STR:
                return text();
            case Frame.BYTES:
                return bytes();
            case Frame.LIST:
                return list(depth);
            case Frame.MAP:
                return map(depth);
            case Frame.TAGGED:
                String name = text();
                announce(1, 0);
                return new Tagged(name, value(depth + 1));
            case Frame.BUFFER:
                return new Buffer(buffer(countNext()).duplicate());
            case Frame.ARRAY:
                return array();
            default:
                throw new FrameException("tag");
        }
    }

    private List<Object> list(int depth) throws FrameException {
        long count = countNext();
        announce(count, 1);
        List<Object> items = new ArrayList<>((int) Math.min(count, ROOM));
        for (long item = 0; item < count; item++) {
            items.add(value(depth + 1));
        }
        return items;
    }

    private Map<String, Object> map(int depth) throws FrameException {
        long count = countNext();
        announce(count, 5);
        Map<String, Object> entries = new LinkedHashMap<>();
        for (long entry = 0; entry < count; entry++) {
            String key = text();
            require(!entries.containsKey(key), "duplicate-key");
            entries.put(key, value(depth + 1));
        }
        return Collections.unmodifiableMap(entries);
    }

    private Array array() throws FrameException {
        long index = countNext();
        char type = (char) byteNext();
        char order = (char) byteNext();
        char layout = (char) byteNext();
        int rank = byteNext();
        require(rank <= RANK_MAX, "array-rank");
        long item = countNext();
        long[] shape = new long[rank];
        for (int axis = 0; axis < rank; axis++) {
            shape[axis] = longNext();
        }
        int unitBytes = byteNext();
        require(unitBytes <= UNIT_BYTES_MAX, "array-unit");
        byte[] unit = take(unitBytes);
        require(ITEMS.indexOf(type) >= 0, "array-class");
        require("<>|".indexOf(order) >= 0, "array-byte-order");
        require("CF".indexOf(layout) >= 0, "array-layout");
        require(fits(type, item), "array-item-bytes");
        boolean isOne = type == 'b' || type == 'S' || type == 'V' || (type == 'i' || type == 'u') && item == 1;
        require(isOne == (order == '|'), "array-byte-order");
        require(isUnit(type, unit), "array-unit");
        long expected = product(shape, item);
        ByteBuffer data = buffer(index);
        require(data.limit() == expected, "array-length");
        String name = new String(unit, StandardCharsets.US_ASCII);
        return new Array(type, order, layout, (int) item, shape, name, data.duplicate().order(ByteOrder.LITTLE_ENDIAN));
    }

    private static boolean fits(char type, long item) {
        switch (type) {
            case 'b':
                return item == 1;
            case 'i':
            case 'u':
                return item == 1 || item == 2 || item == 4 || item == 8;
            case 'f':
                return item == 2 || item == 4 || item == 8;
            case 'c':
                return item == 8 || item == 16;
            case 'm':
            case 'M':
                return item == 8;
            case 'U':
                return item > 0 && item % 4 == 0;
            default:
                return item >= 1;
        }
    }

    private static boolean isUnit(char type, byte[] unit) {
        if (type != 'm' && type != 'M') {
            return unit.length == 0;
        }
        for (byte letter : unit) {
            boolean isLetter = letter >= 'a' && letter <= 'z' || letter >= 'A' && letter <= 'Z';
            if (!isLetter && !(letter >= '0' && letter <= '9')) {
                return false;
            }
        }
        return unit.length > 0;
    }

    /** The bytes of all elements; an axis of none makes them none, but the others must still be below 2^63. */
    private static long product(long[] shape, long item) throws FrameException {
        long product = item;
        boolean isEmpty = false;
        for (long axis : shape) {
            require(axis >= 0, "array-shape");
            if (axis == 0) {
                isEmpty = true;
            } else {
                require(axis <= Long.MAX_VALUE / product, "array-shape");
                product *= axis;
            }
        }
        return isEmpty ? 0 : product;
    }

    private ByteBuffer buffer(long index) throws FrameException {
        require(index < buffers.length, "buffer-index");
        return buffers[(int) index];
    }

    /** Counts values that are announced, of so many bytes each at least. */
    private void announce(long count, int least) throws FrameException {
        require(count <= valuesLeft, "too-many-values");
        valuesLeft -= count;
        require(least * count <= end - at, "value-truncated");
    }

    private String text() throws FrameException {
        byte[] bytes = bytes();
        // What is no UTF-8 would be replaced; this is several times as quick as a decoder of its own.
        String text = new String(bytes, StandardCharsets.UTF_8);
        return text.indexOf(REPLACEMENT) < 0 ? text : strictly(bytes);
    }

    private static String strictly(byte[] bytes) throws FrameException {
        try {
            return StandardCharsets.UTF_8
                    .newDecoder()
                    .onMalformedInput(CodingErrorAction.REPORT)
                    .onUnmappableCharacter(CodingErrorAction.REPORT)
                    .decode(ByteBuffer.wrap(bytes))
                    .toString();
        } catch (CharacterCodingException strange) {
            throw new FrameException("utf8");
        }
    }

    private byte[] bytes() throws FrameException {
        return take(countNext());
    }

    private byte[] take(long count) throws FrameException {
        need(count);
        byte[] taken = new byte[(int) count];
        if (bytes.hasArray()) {
            System.arraycopy(bytes.array(), bytes.arrayOffset() + at, taken, 0, taken.length);
        } else {
            ByteBuffer here = bytes.duplicate();
            here.position(at);
            here.get(taken);
        }
        at += taken.length;
        return taken;
    }

    private int byteNext() throws FrameException {
        need(1);
        return bytes.get(at++) & 0xFF;
    }

    private long countNext() throws FrameException {
        need(4);
        at += 4;
        return bytes.getInt(at - 4) & 0xFFFF_FFFFL;
    }

    private long longNext() throws FrameException {
        need(8);
        at += 8;
        return bytes.getLong(at - 8);
    }

    private void need(long count) throws FrameException {
        require(count <= end - at, "value-truncated");
    }

    private static int checksum(ByteBuffer bytes, int from, int to) {
        return Frame.checksum(Frame.part(bytes, from, to));
    }

    private static boolean isZero(ByteBuffer bytes, int from, int to) {
        for (int at = from; at < to; at++) {
            if (bytes.get(at) != 0) {
                return false;
            }
        }
        return true;
    }

    private static void require(boolean holds, String word) throws FrameException {
        if (!holds) {
            throw new FrameException(word);
        }
    }
}

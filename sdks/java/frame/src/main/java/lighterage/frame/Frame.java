package lighterage.frame;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.CRC32;

/**
 * The frame of `contracts/frame.md`: a header, a typed value, and raw buffers behind it.
 *
 * <p>A body is null, a Boolean, a Long, a Double, a String, a byte[], a List, a Map with String keys in their order, a
 * {@link Tagged}, a {@link Buffer} or an {@link Array}. A writer takes the smaller numbers of Java too.
 */
public final class Frame {
    public static final int CALL = 1;
    public static final int REPLY = 2;
    public static final int FAILURE = 3;
    public static final int EVENT = 4;
    public static final int HEADER_BYTES = 64;

    static final int ALIGNMENT = 64;
    static final int ENTRY_BYTES = 16;
    static final byte[] MAGIC = {(byte) 0x8C, 'L', 'F', 'R'};
    static final int VERSION = 1;
    /** The only flag: the bulk checksum is there. */
    static final int HAS_BULK = 1;

    static final int NULL = 0;
    static final int FALSE = 1;
    static final int TRUE = 2;
    static final int I64 = 3;
    static final int F64 = 4;
    static final int STR = 5;
    static final int BYTES = 6;
    static final int LIST = 7;
    static final int MAP = 8;
    static final int TAGGED = 9;
    static final int BUFFER = 10;
    static final int ARRAY = 11;

    private final int kind;
    private final long id;
    private final Object body;

    /** A frame of this kind, with the id of its call (0 where nothing is answered) and this body. */
    public Frame(int kind, long id, Object body) {
        this.kind = kind;
        this.id = id;
        this.body = body;
    }

    /** One of {@link #CALL}, {@link #REPLY}, {@link #FAILURE} and {@link #EVENT}. */
    public int kind() {
        return kind;
    }

    /** Of the call, unsigned. */
    public long id() {
        return id;
    }

    /** The value that it carries. */
    public Object body() {
        return body;
    }

    /** The bytes of this frame; `bulk`: with a checksum of the buffers. */
    public ByteBuffer encode(boolean bulk) {
        return Writer.write(this, bulk);
    }

    /** The bytes of a checksum. */
    static int checksum(ByteBuffer bytes) {
        CRC32 checksum = new CRC32();
        update(checksum, bytes);
        return (int) checksum.getValue();
    }

    /** Adds bytes to a checksum: by their array where they have one, because old Androids know nothing else. */
    static void update(CRC32 checksum, ByteBuffer bytes) {
        if (bytes.hasArray()) {
            checksum.update(bytes.array(), bytes.arrayOffset() + bytes.position(), bytes.remaining());
            return;
        }
        ByteBuffer left = bytes.duplicate();
        byte[] some = new byte[Math.min(left.remaining(), 8_192)];
        while (left.hasRemaining()) {
            int count = Math.min(left.remaining(), some.length);
            left.get(some, 0, count);
            checksum.update(some, 0, count);
        }
    }

    /** The bytes from one place to another, as a buffer of their own. */
    static ByteBuffer part(ByteBuffer bytes, int from, int to) {
        ByteBuffer part = bytes.duplicate();
        part.limit(to);
        part.position(from);
        return part.slice().order(ByteOrder.LITTLE_ENDIAN);
    }

    /** Whether these bytes begin as a frame does. */
    public static boolean begins(byte[] bytes) {
        for (int at = 0; at < MAGIC.length; at++) {
            if (at >= bytes.length || bytes[at] != MAGIC[at]) {
                return false;
            }
        }
        return true;
    }

    /** How many bytes the frame has whose header these bytes begin with. */
    public static long totalBytes(ByteBuffer bytes, Limits limits) throws FrameException {
        return Reader.header(bytes, limits);
    }

    /** Reads one frame, which the bytes are whole. Its buffers are views of them. */
    public static Frame decode(ByteBuffer bytes, Limits limits) throws FrameException {
        return Reader.read(bytes, limits);
    }

    static int aligned(long bytes) {
        long aligned = (bytes + ALIGNMENT - 1) & -ALIGNMENT;
        if (aligned > Integer.MAX_VALUE) {
            throw new IllegalArgumentException("a frame of " + aligned + " bytes is too large for Java");
        }
        return (int) aligned;
    }
}

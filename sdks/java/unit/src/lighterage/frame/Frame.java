package lighterage.frame;

import java.nio.ByteBuffer;

/**
 * The frame of `contracts/frame.md`: a header, a typed value, and raw buffers behind it.
 *
 * <p>A body is null, a Boolean, a Long, a Double, a String, a byte[], a List, a Map with String keys in their order, a
 * {@link Tagged}, a {@link Buffer} or an {@link Array}. A writer takes the smaller numbers of Java too.
 */
public record Frame(int kind, long id, Object body) {
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

    /** The bytes of this frame; `bulk`: with a checksum of the buffers. */
    public ByteBuffer encode(boolean bulk) {
        return Writer.write(this, bulk);
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
        return Math.toIntExact((bytes + ALIGNMENT - 1) & -ALIGNMENT);
    }
}

package lighterage.frame;

import java.nio.ByteBuffer;

/** Bytes that stand beside the typed part of a frame. What a reader gives is a view of the frame. */
public final class Buffer {
    private final ByteBuffer bytes;

    /** These bytes, which are not copied. */
    public Buffer(ByteBuffer bytes) {
        this.bytes = bytes;
    }

    /** These bytes, which are not copied. */
    public Buffer(byte[] bytes) {
        this(ByteBuffer.wrap(bytes));
    }

    /** The bytes, from the buffer's position to its limit. */
    public ByteBuffer bytes() {
        return bytes;
    }

    /** A copy of the bytes. */
    public byte[] copy() {
        ByteBuffer view = bytes.duplicate();
        byte[] copy = new byte[view.remaining()];
        view.get(copy);
        return copy;
    }
}

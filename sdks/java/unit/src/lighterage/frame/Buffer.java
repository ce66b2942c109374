package lighterage.frame;

import java.nio.ByteBuffer;

/** Bytes that stand beside the typed part of a frame. What a reader gives is a view of the frame. */
public record Buffer(ByteBuffer bytes) {
    public Buffer(byte[] bytes) {
        this(ByteBuffer.wrap(bytes));
    }

    /** A copy of the bytes. */
    public byte[] copy() {
        ByteBuffer view = bytes.duplicate();
        byte[] copy = new byte[view.remaining()];
        view.get(copy);
        return copy;
    }
}

package lighterage.frame;

import java.nio.ByteBuffer;

/**
 * Elements of one type along some axes: their raw bytes are never encoded anew.
 *
 * <p>The words are those of `contracts/frame.md`: `type` is its class, `order` its byte order.
 */
public final class Array {
    private final char type;
    private final char order;
    private final char layout;
    private final int itemBytes;
    private final long[] shape;
    private final String unit;
    private final ByteBuffer data;

    /**
     * Elements as they lie in `data`, which is not copied.
     *
     * @param type `b`, `i`, `u`, `f`, `c`, `m`, `M`, `S`, `U` or `V`
     * @param order {@code <} where the least significant byte is first, {@code >} where it is last, `|` where
     *     there is none
     * @param layout `C` where the last axis runs fastest, `F` where the first does
     * @param itemBytes bytes of one element
     * @param shape elements along each axis, at most 64 axes
     * @param unit of times, as `ns`; else empty
     * @param data exactly the bytes of all elements
     */
    public Array(char type, char order, char layout, int itemBytes, long[] shape, String unit, ByteBuffer data) {
        this.type = type;
        this.order = order;
        this.layout = layout;
        this.itemBytes = itemBytes;
        this.shape = shape;
        this.unit = unit;
        this.data = data;
    }

    /** An array of one axis, of numbers with the least significant byte first. */
    public static Array of(char type, int itemBytes, ByteBuffer data) {
        long[] shape = {data.remaining() / itemBytes};
        return new Array(type, itemBytes == 1 ? '|' : '<', 'C', itemBytes, shape, "", data);
    }

    /** The class of its elements. */
    public char type() {
        return type;
    }

    /** Their byte order. */
    public char order() {
        return order;
    }

    /** Which axis runs fastest. */
    public char layout() {
        return layout;
    }

    /** Bytes of one element. */
    public int itemBytes() {
        return itemBytes;
    }

    /** Elements along each axis. */
    public long[] shape() {
        return shape;
    }

    /** The unit of times; else empty. */
    public String unit() {
        return unit;
    }

    /** The bytes of all elements. What a reader gives is a view of the frame. */
    public ByteBuffer data() {
        return data;
    }
}

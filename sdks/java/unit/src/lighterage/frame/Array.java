package lighterage.frame;

import java.nio.ByteBuffer;

/**
 * Elements of one type along some axes: their raw bytes are never encoded anew.
 *
 * <p>The words are those of `contracts/frame.md`: `type` is its class, `order` its byte order.
 */
public record Array(char type, char order, char layout, int itemBytes, long[] shape, String unit, ByteBuffer data) {
    /** An array of one axis, of numbers with the least significant byte first. */
    public static Array of(char type, int itemBytes, ByteBuffer data) {
        long[] shape = {data.remaining() / itemBytes};
        return new Array(type, itemBytes == 1 ? '|' : '<', 'C', itemBytes, shape, "", data);
    }
}

package lighterage.droid.natives;

import java.util.Arrays;

/** Bytes with a place at which they are read and written, in steps of four. */
final class Bytes {
    private byte[] bytes = new byte[0];
    int size;
    int position;

    void clear() {
        bytes = new byte[0];
        size = 0;
        position = 0;
    }

    int capacity() {
        return bytes.length;
    }

    void reserve(int capacity) {
        if (capacity > bytes.length) {
            bytes = Arrays.copyOf(bytes, capacity);
        }
    }

    void resize(int wanted) {
        if (wanted < 0) {
            throw new IllegalArgumentException("a parcel cannot have " + wanted + " bytes");
        }
        reserve(wanted);
        size = wanted;
        position = Math.min(position, size);
    }

    void seek(int wanted) {
        if (wanted < 0) {
            throw new IllegalArgumentException("a parcel has no place " + wanted);
        }
        position = wanted;
    }

    void writeInt(int value) {
        write(new byte[] {(byte) value, (byte) (value >> 8), (byte) (value >> 16), (byte) (value >> 24)}, 0, 4);
    }

    /** Nothing is read behind the end: zero stands there, as in Android. */
    int readInt() {
        if (position > size - 4) {
            return 0;
        }
        int at = position;
        position += 4;
        return bytes[at] & 255 | (bytes[at + 1] & 255) << 8 | (bytes[at + 2] & 255) << 16 | bytes[at + 3] << 24;
    }

    void write(byte[] from, int begin, int length) {
        int end = Math.addExact(position, aligned(length));
        if (end > bytes.length) {
            reserve(Math.max(end, bytes.length + (bytes.length >> 1)));
        }
        System.arraycopy(from, begin, bytes, position, length);
        Arrays.fill(bytes, position + length, end, (byte) 0);
        position = end;
        size = Math.max(size, end);
    }

    /** null where there are not as many. */
    byte[] read(int length) {
        if (length < 0 || length > size - position) {
            return null;
        }
        byte[] read = Arrays.copyOfRange(bytes, position, position + length);
        position = Math.min(size, position + aligned(length));
        return read;
    }

    byte[] all() {
        return Arrays.copyOf(bytes, size);
    }

    byte[] part(int from, int length) {
        if (from < 0 || length < 0 || length > size - from) {
            throw new IllegalArgumentException("a parcel of " + size + " bytes has no " + length + " from " + from);
        }
        return Arrays.copyOfRange(bytes, from, from + length);
    }

    private static int aligned(int length) {
        return Math.addExact(length, 3) & ~3;
    }
}

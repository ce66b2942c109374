package lighterage.droid.natives;

import android.os.IBinder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Parcels within one process: bytes on the heap, found by the number that `android.os.Parcel` takes for a pointer.
 *
 * <p>Everything is aligned to four bytes and little-endian, as in Android. Objects of other processes do not
 * exist here, so writing one that is not null throws UnsupportedOperationException; descriptors cannot be written.
 */
public final class Parcel {
    private static final ConcurrentHashMap<Long, Bytes> PARCELS = new ConcurrentHashMap<>();
    private static final AtomicLong LAST = new AtomicLong();

    private Parcel() {}

    public static long nativeCreate() {
        long pointer = LAST.incrementAndGet();
        PARCELS.put(pointer, new Bytes());
        return pointer;
    }

    public static void nativeFreeBuffer(long pointer) {
        of(pointer).clear();
    }

    public static void nativeDestroy(long pointer) {
        PARCELS.remove(pointer);
    }

    private static Bytes of(long pointer) {
        Bytes bytes = PARCELS.get(pointer);
        if (bytes == null) {
            throw new IllegalStateException("the parcel was recycled");
        }
        return bytes;
    }

    public static void nativeMarkSensitive(long pointer) {}

    public static void nativeMarkForBinder(long pointer, IBinder binder) {}

    public static boolean nativeIsForRpc(long pointer) {
        return false;
    }

    public static int nativeDataSize(long pointer) {
        return of(pointer).size;
    }

    public static int nativeDataAvail(long pointer) {
        return of(pointer).size - of(pointer).position;
    }

    public static int nativeDataPosition(long pointer) {
        return of(pointer).position;
    }

    public static int nativeDataCapacity(long pointer) {
        return of(pointer).capacity();
    }

    public static void nativeSetDataSize(long pointer, int size) {
        of(pointer).resize(size);
    }

    public static void nativeSetDataPosition(long pointer, int position) {
        of(pointer).seek(position);
    }

    public static void nativeSetDataCapacity(long pointer, int capacity) {
        of(pointer).reserve(capacity);
    }

    public static boolean nativePushAllowFds(long pointer, boolean allow) {
        return true;
    }

    public static void nativeRestoreAllowFds(long pointer, boolean allow) {}

    public static void nativeWriteByteArray(long pointer, byte[] bytes, int from, int length) {
        if (bytes == null) {
            of(pointer).writeInt(-1);
            return;
        }
        of(pointer).writeInt(length);
        of(pointer).write(bytes, from, length);
    }

    public static void nativeWriteBlob(long pointer, byte[] bytes, int from, int length) {
        nativeWriteByteArray(pointer, bytes, from, length);
    }

    public static int nativeWriteInt(long pointer, int value) {
        of(pointer).writeInt(value);
        return 0;
    }

    public static int nativeWriteLong(long pointer, long value) {
        of(pointer).writeInt((int) value);
        of(pointer).writeInt((int) (value >>> 32));
        return 0;
    }

    public static int nativeWriteFloat(long pointer, float value) {
        return nativeWriteInt(pointer, Float.floatToRawIntBits(value));
    }

    public static int nativeWriteDouble(long pointer, double value) {
        return nativeWriteLong(pointer, Double.doubleToRawLongBits(value));
    }

    public static void nativeWriteString8(long pointer, String text) {
        byte[] bytes = text == null ? null : text.getBytes(StandardCharsets.UTF_8);
        nativeWriteByteArray(pointer, bytes, 0, bytes == null ? 0 : bytes.length);
    }

    public static void nativeWriteString16(long pointer, String text) {
        byte[] bytes = text == null ? null : text.getBytes(StandardCharsets.UTF_16LE);
        nativeWriteByteArray(pointer, bytes, 0, bytes == null ? 0 : bytes.length);
    }

    public static void nativeWriteStrongBinder(long pointer, IBinder binder) {
        if (binder != null) {
            throw new UnsupportedOperationException("there is no other process that a Binder could reach");
        }
        of(pointer).writeInt(0);
    }

    public static IBinder nativeReadStrongBinder(long pointer) {
        of(pointer).readInt();
        return null;
    }

    public static byte[] nativeCreateByteArray(long pointer) {
        Bytes bytes = of(pointer);
        int length = bytes.readInt();
        return length < 0 ? null : bytes.read(length);
    }

    public static boolean nativeReadByteArray(long pointer, byte[] into, int length) {
        byte[] bytes = nativeCreateByteArray(pointer);
        if (bytes == null || bytes.length != length || into.length < length) {
            return false;
        }
        System.arraycopy(bytes, 0, into, 0, length);
        return true;
    }

    public static byte[] nativeReadBlob(long pointer) {
        return nativeCreateByteArray(pointer);
    }

    public static int nativeReadInt(long pointer) {
        return of(pointer).readInt();
    }

    public static long nativeReadLong(long pointer) {
        return of(pointer).readInt() & 0xFFFF_FFFFL | (long) of(pointer).readInt() << 32;
    }

    public static float nativeReadFloat(long pointer) {
        return Float.intBitsToFloat(nativeReadInt(pointer));
    }

    public static double nativeReadDouble(long pointer) {
        return Double.longBitsToDouble(nativeReadLong(pointer));
    }

    public static String nativeReadString8(long pointer) {
        byte[] bytes = nativeCreateByteArray(pointer);
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    public static String nativeReadString16(long pointer) {
        byte[] bytes = nativeCreateByteArray(pointer);
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_16LE);
    }

    public static byte[] nativeMarshall(long pointer) {
        return of(pointer).all();
    }

    public static void nativeUnmarshall(long pointer, byte[] bytes, int from, int length) {
        of(pointer).clear();
        of(pointer).write(bytes, from, length);
    }

    public static int nativeCompareData(long pointer, long other) {
        return Arrays.compare(of(pointer).all(), of(other).all());
    }

    public static boolean nativeCompareDataInRange(long pointer, int from, long other, int otherFrom, int length) {
        return Arrays.equals(of(pointer).part(from, length), of(other).part(otherFrom, length));
    }

    public static void nativeAppendFrom(long pointer, long other, int from, int length) {
        of(pointer).write(of(other).part(from, length), 0, length);
    }

    public static boolean nativeHasFileDescriptors(long pointer) {
        return false;
    }

    public static boolean nativeHasFileDescriptorsInRange(long pointer, int from, int length) {
        return false;
    }

    public static boolean nativeHasBinders(long pointer) {
        return false;
    }

    public static boolean nativeHasBindersInRange(long pointer, int from, int length) {
        return false;
    }

    public static long nativeGetOpenAshmemSize(long pointer) {
        return 0;
    }
}

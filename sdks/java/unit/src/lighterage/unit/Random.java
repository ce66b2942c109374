package lighterage.unit;

import java.io.FileInputStream;
import java.io.IOException;
import java.io.UncheckedIOException;

/** Unpredictable bytes of the operating system. */
public final class Random {
    /** Of one call. */
    public static final int BYTES_MAX = 65_536;

    private Random() {}

    public static byte[] bytes(int count) {
        if (count < 0 || count > BYTES_MAX) {
            throw new IllegalArgumentException("random bytes: " + count + " asked for, the limit is " + BYTES_MAX);
        }
        try (FileInputStream device = new FileInputStream("/dev/urandom")) {
            return device.readNBytes(count);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}

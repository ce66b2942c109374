package lighterage.convert;

import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.zip.ZipEntry;
import java.util.zip.ZipInputStream;

/** Reads the members of an apk or jar that matter. What they really unpack to is bounded, not what they say. */
final class Zip {
    /** Members of one, and bytes of all that are read. */
    private static final int MEMBERS_MAX = 20_000;
    private static final long BYTES_MAX = 96L << 20;

    private Zip() {}

    /** Which members are wanted. */
    interface Wanted {
        boolean is(String name);
    }

    /** Throws Unfit if it is damaged, or beyond a bound. */
    static Map<String, byte[]> read(String what, byte[] zip, Wanted wanted) {
        Map<String, byte[]> members = new LinkedHashMap<>();
        long bytes = 0;
        int count = 0;
        try (ZipInputStream in = new ZipInputStream(new ByteArrayInputStream(zip))) {
            for (ZipEntry entry = in.getNextEntry(); entry != null; entry = in.getNextEntry()) {
                if (++count > MEMBERS_MAX) {
                    throw new Unfit(what + " has more than " + MEMBERS_MAX + " members");
                }
                if (entry.isDirectory() || !wanted.is(entry.getName())) {
                    continue;
                }
                byte[] content = in.readNBytes((int) (BYTES_MAX - bytes + 1));
                bytes += content.length;
                if (bytes > BYTES_MAX) {
                    throw new Unfit(what + " has more than " + BYTES_MAX + " bytes once it is unpacked");
                }
                if (members.put(entry.getName(), content) != null) {
                    throw new Unfit(what + " has " + entry.getName() + " twice");
                }
            }
        } catch (IOException | IllegalArgumentException damaged) {
            throw new Unfit(what + " is damaged: " + damaged.getMessage());
        }
        return members;
    }
}

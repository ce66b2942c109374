package lighterage.convert;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/** The members of a bundle, which the node has checked: plain files with short names. */
final class Tar {
    private static final int BLOCK = 512;
    private static final int SIZE_AT = 124;
    private static final int SIZE_BYTES = 12;
    private static final int PREFIX_AT = 345;
    private static final int PREFIX_BYTES = 155;
    private static final int NAME_BYTES = 100;

    private Tar() {}

    static Map<String, byte[]> read(byte[] tar) {
        Map<String, byte[]> members = new LinkedHashMap<>();
        for (int at = 0; at + BLOCK <= tar.length && tar[at] != 0; ) {
            String prefix = text(tar, at + PREFIX_AT, PREFIX_BYTES);
            String name = (prefix.isEmpty() ? "" : prefix + "/") + text(tar, at, NAME_BYTES);
            int size = Integer.parseInt(text(tar, at + SIZE_AT, SIZE_BYTES).trim(), 8);
            at += BLOCK;
            members.put(name, Arrays.copyOfRange(tar, at, at + size));
            at += (size + BLOCK - 1) / BLOCK * BLOCK;
        }
        return members;
    }

    private static String text(byte[] tar, int from, int most) {
        int end = from;
        while (end < from + most && tar[end] != 0) {
            end++;
        }
        return new String(tar, from, end - from, StandardCharsets.UTF_8);
    }
}

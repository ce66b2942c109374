package lighterage.code;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;

/** A tar of files (USTAR), without times and owners: the same files give the same bytes on every machine. */
final class Tar {
    private static final int BLOCK = 512;
    /** Python's tar files end at a multiple of this, and so do all bundles. */
    private static final int RECORD = 20 * BLOCK;
    private static final int NAME_MAX = 100;

    private final ByteArrayOutputStream out = new ByteArrayOutputStream();

    void add(String name, byte[] content) {
        byte[] head = new byte[BLOCK];
        byte[] path = name.getBytes(StandardCharsets.UTF_8);
        if (path.length > NAME_MAX) {
            throw new IllegalArgumentException(name + " is longer than " + NAME_MAX + " bytes");
        }
        System.arraycopy(path, 0, head, 0, path.length);
        octal(head, 100, 8, 0444);
        octal(head, 108, 8, 0);
        octal(head, 116, 8, 0);
        octal(head, 124, 12, content.length);
        octal(head, 136, 12, 0);
        head[156] = '0';
        byte[] magic = "ustar\00000".getBytes(StandardCharsets.US_ASCII);
        System.arraycopy(magic, 0, head, 257, magic.length);
        octal(head, 329, 8, 0);
        octal(head, 337, 8, 0);
        checksum(head);
        out.write(head, 0, BLOCK);
        out.write(content, 0, content.length);
        pad(BLOCK);
    }

    byte[] bytes() {
        out.write(new byte[2 * BLOCK], 0, 2 * BLOCK);
        pad(RECORD);
        return out.toByteArray();
    }

    private void pad(int multiple) {
        while (out.size() % multiple != 0) {
            out.write(0);
        }
    }

    /** A number in octal digits, closed by a zero byte. */
    private static void octal(byte[] head, int at, int length, int number) {
        String digits = Integer.toOctalString(number);
        for (int place = 0; place < length - 1; place++) {
            int digit = digits.length() - (length - 1) + place;
            head[at + place] = (byte) (digit < 0 ? '0' : digits.charAt(digit));
        }
    }

    private static void checksum(byte[] head) {
        int sum = 8 * ' ';
        for (byte one : head) {
            sum += one & 0xFF;
        }
        octal(head, 148, 7, sum);
        head[155] = ' ';
    }
}

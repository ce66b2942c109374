package lighterage.frame;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.zip.CRC32;
import lighterage.json.Json;

/** Bytes of strangers: whatever is changed in them, they are read or refused, and nothing else. */
public final class MutationTest {
    private static final int TURNS = 40_000;
    private static final long SEED = 20_261_123;

    /** Frames with bytes changed, cut and grown; their checksums are made right, so that what lies behind is read. */
    public void testAChangedFrameIsReadOrRefused() throws IOException {
        List<byte[]> frames = new ArrayList<>();
        Path folder = Paths.get(System.getProperty("lighterage.root"), "contracts/conformance/frame");
        try (DirectoryStream<Path> cases = Files.newDirectoryStream(folder, Files::isDirectory)) {
            for (Path one : cases) {
                String text = new String(Files.readAllBytes(one.resolve("frame.hex")), StandardCharsets.US_ASCII);
                frames.add(bytes(text.replaceAll("\\s", "")));
            }
        }
        assert frames.size() > 90 : frames.size();
        Random random = new Random(SEED);
        int read = 0;
        for (int turn = 0; turn < TURNS; turn++) {
            byte[] frame = changed(frames.get(random.nextInt(frames.size())).clone(), random);
            try {
                Frame found = Frame.decode(ByteBuffer.wrap(frame), Limits.DEFAULT);
                // What is read can be written, and is the same then.
                byte[] again = found.encode(false).array();
                Frame twice = Frame.decode(ByteBuffer.wrap(again), Limits.DEFAULT);
                assert Arrays.equals(twice.encode(false).array(), again) : turn;
                read++;
            } catch (FrameException refused) {
                assert !refused.word.isEmpty();
            }
        }
        assert read > 100 && read < TURNS : read;
    }

    /** Texts of JSON with letters changed. */
    public void testAChangedTextIsReadOrRefused() {
        String text = "{\"a\":[1,-2.5e3,true,null,\"x\\u00e9\\n\"],\"b\":{\"c\":[[],{}]},\"d\":12345678901234567890}";
        Random random = new Random(SEED);
        int read = 0;
        for (int turn = 0; turn < TURNS; turn++) {
            char[] letters = text.toCharArray();
            for (int count = random.nextInt(3); count >= 0; count--) {
                letters[random.nextInt(letters.length)] = "[]{}\",:\\eE+-.019tfn u\0".charAt(random.nextInt(22));
            }
            int length = random.nextInt(4) == 0 ? random.nextInt(letters.length) : letters.length;
            String changed = new String(letters, 0, length);
            try {
                Object found = Json.read(changed);
                assert Json.write(Json.read(Json.write(found))).equals(Json.write(found)) : changed;
                read++;
            } catch (IllegalArgumentException refused) {
                assert refused.getMessage() != null;
            }
        }
        assert read > 100 && read < TURNS : read;
    }

    private static byte[] changed(byte[] frame, Random random) {
        byte[] bytes = random.nextInt(8) == 0 ? Arrays.copyOf(frame, random.nextInt(frame.length + 64)) : frame;
        for (int count = random.nextInt(4); count > 0 && bytes.length > 0; count--) {
            int at = random.nextInt(bytes.length);
            bytes[at] = (byte) (random.nextBoolean() ? random.nextInt(256) : bytes[at] + random.nextInt(3) - 1);
        }
        if (bytes.length >= Frame.HEADER_BYTES) {
            ByteBuffer view = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
            long front = Frame.HEADER_BYTES + 16L * view.getInt(28) + view.getInt(24);
            if (front >= Frame.HEADER_BYTES && front <= bytes.length) {
                view.putInt(32, checksum(bytes, Frame.HEADER_BYTES, (int) front));
            }
            view.putInt(60, checksum(bytes, 0, 60));
        }
        return bytes;
    }

    private static int checksum(byte[] bytes, int from, int to) {
        CRC32 checksum = new CRC32();
        checksum.update(bytes, from, to - from);
        return (int) checksum.getValue();
    }

    private static byte[] bytes(String digits) {
        byte[] bytes = new byte[digits.length() / 2];
        for (int at = 0; at < bytes.length; at++) {
            bytes[at] = (byte) Integer.parseInt(digits.substring(2 * at, 2 * at + 2), 16);
        }
        return bytes;
    }
}

package lighterage.travel;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.zip.CRC32;
import lighterage.DoesNotTravel;
import lighterage.frame.Frame;
import lighterage.frame.Limits;

/** What a call may hold is the same on both sides, and what is too much does not travel. */
public final class CallsTest {
    /** Many values are written and read; one more is said before anything is sent. */
    public void testAsManyValuesAreWrittenAsAreRead() throws Exception {
        List<Object> many = Collections.nCopies(2_000_000, null);
        byte[] frame = Calls.write(Collections.singletonList(many));
        Frame read = Frame.decode(ByteBuffer.wrap(frame), Limits.CALL);
        assert read.body().toString().length() > 2_000_000;
        assert said(Collections.nCopies(8_000_001, null)).contains("more than 8000000 others");
        assert said(Collections.nCopies(65_537, Values.of(new int[] {1}))).contains("more than 65536 arrays");
        List<Object> cycle = new ArrayList<>();
        cycle.add(cycle);
        assert said(cycle).contains("is there a cycle?");
    }

    private static String said(List<?> arguments) {
        try {
            Calls.write(new ArrayList<>(arguments));
            throw new AssertionError("it is written");
        } catch (DoesNotTravel stays) {
            return stays.getMessage();
        }
    }

    /** The node is not at fault where a result is more than one may be. */
    public void testAResultOfTooManyValuesDoesNotTravel() {
        byte[] wide = Arrays.copyOf(new byte[] {7, 1, 18, 122, 0}, 8_000_006);
        byte[] deep = new byte[129 * 5 + 1];
        for (int level = 0; level < 129; level++) {
            deep[5 * level] = 7;
            deep[5 * level + 1] = 1;
        }
        for (byte[] meta : Arrays.asList(wide, deep)) {
            try {
                Calls.read(reply(meta), "node");
                assert false;
            } catch (DoesNotTravel stays) {
                assert stays.getMessage().contains("too-") : stays;
            }
        }
    }

    private static byte[] reply(byte[] meta) {
        ByteBuffer out = ByteBuffer.allocate(Frame.HEADER_BYTES + meta.length).order(ByteOrder.LITTLE_ENDIAN);
        out.put(new byte[] {(byte) 0x8C, 'L', 'F', 'R', 1, Frame.REPLY, 0, 0});
        out.putLong(out.capacity()).putLong(0).putInt(meta.length).putInt(0).putInt(checksum(meta, meta.length));
        out.putInt(60, checksum(out.array(), 60));
        out.position(Frame.HEADER_BYTES);
        out.put(meta);
        return out.array();
    }

    private static int checksum(byte[] bytes, int length) {
        CRC32 checksum = new CRC32();
        checksum.update(bytes, 0, length);
        return (int) checksum.getValue();
    }
}

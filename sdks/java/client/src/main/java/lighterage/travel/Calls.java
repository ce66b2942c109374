package lighterage.travel;

import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import lighterage.DoesNotTravel;
import lighterage.ReplyBroken;
import lighterage.frame.Frame;
import lighterage.frame.FrameException;
import lighterage.frame.Limits;
import lighterage.frame.Tagged;

/**
 * A call of a method as bytes, and its reply: the contract `call` of bundles.
 *
 * <p>A call's body is `{"args": […]}`. A reply's is the value, or tagged `thrown` an exception.
 */
public final class Calls {
    private static final String THROWN = "thrown";
    /** What a reader of replies accepts; the bytes of the whole are limited before. */
    private static final Limits LIMITS = new Limits(Integer.MAX_VALUE, 256L << 20, 65_536, 128, 1L << 20);

    private Calls() {}

    /** The frame of a call. Throws DoesNotTravel where it cannot be written. */
    public static byte[] write(List<Object> arguments) {
        Map<String, Object> body = new LinkedHashMap<>();
        body.put("args", arguments);
        try {
            return new Frame(Frame.CALL, 0, body).encode(false).array();
        } catch (IllegalArgumentException strange) {
            throw new DoesNotTravel("the arguments cannot be written: " + strange.getMessage());
        }
    }

    /** The plain value of a reply, or a {@link Thrown}. Throws ReplyBroken where the bytes are none. */
    public static Object read(byte[] bytes, String url) {
        try {
            Frame frame = Frame.decode(ByteBuffer.wrap(bytes), LIMITS);
            if (frame.kind() != Frame.REPLY) {
                throw new FrameException("kind");
            }
            Object body = frame.body();
            boolean isThrown = body instanceof Tagged && ((Tagged) body).name().equals(THROWN);
            return isThrown ? new Thrown(((Tagged) body).value()) : body;
        } catch (FrameException | IllegalArgumentException strange) {
            throw new ReplyBroken(url + " sent a reply that cannot be read: " + strange.getMessage());
        }
    }
}

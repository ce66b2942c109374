package lighterage.travel;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
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
    /** What is wrong with a frame that is larger than one may be. */
    private static final Set<String> TOO_MUCH =
            new HashSet<>(Arrays.asList("too-many-values", "too-deep", "too-many-buffers", "meta-too-large"));

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

    /**
     * The plain value of a reply, or a {@link Thrown}. Throws ReplyBroken where the bytes are none, and DoesNotTravel
     * where they are of a result that is larger than one may be.
     */
    public static Object read(byte[] bytes, String url) {
        try {
            Frame frame = Frame.decode(ByteBuffer.wrap(bytes), Limits.CALL);
            if (frame.kind() != Frame.REPLY) {
                throw new FrameException("kind");
            }
            Object body = frame.body();
            boolean isThrown = body instanceof Tagged && ((Tagged) body).name().equals(THROWN);
            return isThrown ? new Thrown(((Tagged) body).value()) : body;
        } catch (FrameException | IllegalArgumentException strange) {
            if (strange instanceof FrameException && TOO_MUCH.contains(((FrameException) strange).word)) {
                throw new DoesNotTravel("the result holds more values than a call brings: " + strange.getMessage());
            }
            throw new ReplyBroken(url + " sent a reply that cannot be read: " + strange.getMessage());
        }
    }
}

package lighterage.call;

import java.io.IOException;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import lighterage.DoesNotTravel;
import lighterage.ReplyBroken;
import lighterage.code.Limits;
import lighterage.places.Nodes;
import lighterage.places.StandIn;
import lighterage.travel.Values;

/** What goes wrong between here and a node is never taken for what the method throws. */
public final class WireTest {
    private static final Limits LIMITS = new Limits(300_000, 1 << 20, 1 << 20);

    private final Nodes nodes = new Nodes(Collections.singletonMap("LIGHTER_DATA", "/nowhere"));
    private final Options options = Options.of(0, 1, false, LIMITS, false);
    private final Caller caller = new Caller(new Function(new Counted(), options), options, nodes);
    private StandIn node;

    /** A node, to which all methods are sent as the same jar. */
    public void setUp() throws IOException {
        node = new StandIn();
        nodes.connect(node.url(), null);
        Sources.name(new byte[] {1});
    }

    /** Ends it. */
    public void tearDown() {
        node.close();
        nodes.disconnect();
        Sources.name(null);
    }

    /** Times that a node says wrongly are not believed, and that is all. */
    public void testStrangeTimesAreNotBelieved() throws Throwable {
        for (String timing : Arrays.asList("run;dur=;", "run;dur=", ";dur=;;", "run;dur=x, queue;dur=1;desc=y", ",")) {
            node.timing = timing;
            assert caller.call(new Object[] {null}).equals(1) : timing;
        }
    }

    /** A result of another type, or none where there is always one, is a broken reply. */
    public void testAResultOfAnotherTypeIsABrokenReply() throws Throwable {
        for (Object result : new Object[] {null, "text", Long.MAX_VALUE}) {
            node.result = result;
            try {
                caller.call(new Object[] {null});
                assert false;
            } catch (ReplyBroken broken) {
                assert broken.getMessage().contains("another type") : broken;
            }
        }
    }

    /** Arguments that cannot be written do not travel. */
    public void testArgumentsThatCannotBeWrittenDoNotTravel() throws Throwable {
        try {
            caller.call(new Object[] {Collections.singletonMap(null, 1L)});
            assert false;
        } catch (DoesNotTravel stays) {
            assert stays.getMessage().contains("app.Work::counted cannot be written") : stays;
            assert stays.getCause() instanceof NullPointerException : stays.getCause();
        }
    }

    private static final class Counted extends Table {
        private Counted() {
            super("app.Work::counted");
        }

        @Override
        protected Object run(Object[] arguments) {
            throw new AssertionError("it is to run on the node");
        }

        @Override
        protected List<Object> lower(Object[] arguments) {
            @SuppressWarnings("unchecked")
            Map<String, Object> map = (Map<String, Object>) arguments[0];
            return Collections.singletonList(Values.map(map, item -> item));
        }

        @Override
        protected Object lift(Object value) {
            return Values.given(Values.asInt(value));
        }
    }
}

package lighterage.call;

import android.os.Looper;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import lighterage.NoNode;
import lighterage.OnMainThread;
import lighterage.code.Limits;
import lighterage.places.Nodes;

/** Calls without a node: they run here, and not where they would keep a screen waiting. */
public final class CallerTest {
    private static final Limits LIMITS = new Limits(1_000, 1 << 20, 1 << 20);
    private final Nodes none = new Nodes(Collections.singletonMap("LIGHTER_DATA", "/nowhere"));
    private final Options options = Options.of(0, 1, true, LIMITS, false);
    private final Caller caller = new Caller(new Function(new Doubled(), options), options, none);

    private Throwable failure = new AssertionError("it did not run");
    private Future<Object> later;

    /** Here, in another thread, and said why. */
    public void testWithoutNodesCallsRunHere() throws Throwable {
        assert caller.call(new Object[] {4}).equals(8);
        assert caller.<Integer>submit(new Object[] {5}).get() == 10;
        assert caller.explain(new Object[] {5}).toString().contains("local, the only place");
        try {
            caller.call(new Object[] {null});
            assert false;
        } catch (NullPointerException own) {
            assert own.getStackTrace().length > 0;
        }
        try {
            caller.with(caller.options().on("node:1")).submit(new Object[] {1}).get();
            assert false;
        } catch (ExecutionException thrown) {
            assert thrown.getCause() instanceof NoNode;
        }
    }

    /** On the main thread only `submit` may be used. */
    public void testACallOnTheMainThreadIsRefused() throws Throwable {
        Thread drawing = new Thread(() -> {
            Looper.prepareMainLooper();
            try {
                caller.call(new Object[] {4});
                failure = new AssertionError("it is not refused");
            } catch (OnMainThread refused) {
                failure = refused.code().equals("L8008") ? null : refused;
            } catch (Throwable other) {
                failure = other;
            }
            later = caller.submit(new Object[] {6});
        });
        drawing.start();
        drawing.join();
        if (failure != null) {
            throw failure;
        }
        assert later.get().equals(12);
        assert caller.call(new Object[] {4}).equals(8);
    }

    /** A deadline of no time is none. */
    public void testOptionsAreChecked() {
        try {
            caller.options().deadlineMs(0);
            assert false;
        } catch (IllegalArgumentException said) {
            assert said.getMessage().contains("more than 0");
        }
    }

    private static final class Doubled extends Table {
        private Doubled() {
            super("app.Work::doubled");
        }

        @Override
        protected Object run(Object[] arguments) {
            return 2 * (Integer) arguments[0];
        }

        @Override
        protected List<Object> lower(Object[] arguments) {
            return Arrays.asList(arguments);
        }

        @Override
        protected Object lift(Object value) {
            return value;
        }
    }
}

package app;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import lighterage.DoesNotTravel;
import lighterage.Lighterage;
import lighterage.LighterageException;
import lighterage.NoNode;
import lighterage.NodeRefused;
import lighterage.NodeUnreachable;
import lighterage.RemoteException;
import lighterage.TimeIsUp;
import lighterage.jvm.Lambda;
import lighterage.places.Node;

/** Calls on a real node, which `tools/check-java` starts and names as `LIGHTERAGE_TEST_NODE` and `…_TOKEN`. */
public final class NodeTest {
    private final String url = System.getenv("LIGHTERAGE_TEST_NODE");
    private Node node;

    /** Connects, where there is a node. */
    public void setUp() {
        if (url != null) {
            node = Lighterage.connect(url, System.getenv("LIGHTERAGE_TEST_TOKEN"));
        }
    }

    /** Forgets it. */
    public void tearDown() {
        Lighterage.disconnect();
    }

    /** Everything that a method may take and give, there and back. */
    public void testValuesOfEveryKindTravel() {
        if (node == null) {
            return;
        }
        double[] numbers = Numeric_Offload.SCALED.on(url).call(new double[] {1, 2.5}, 2);
        assert Arrays.equals(numbers, new double[] {2, 5}) : Arrays.toString(numbers);
        String kinds = Numeric_Offload.KINDS.on(url).call(true, 'ß', (byte) -7, (short) 300, null, 1L << 60, 0.1f);
        assert kinds.equals("true ß -7 300 null 1152921504606846976 0.1") : kinds;
        Numeric.Point point = new Numeric.Point();
        point.x = 3;
        point.colours = Arrays.asList(Numeric.Colour.GREEN, null);
        Map<String, List<Numeric.Point>> mirrored = Numeric_Offload.MIRRORED
                .on(url)
                .call(Arrays.asList(point, point), Collections.singletonMap("twice", 2));
        assert mirrored.get("twice").get(1).x == -6;
        assert mirrored.get("twice").get(0).colours.equals(point.colours);
        byte[] many = new byte[100_000];
        many[99_999] = 1;
        byte[] reversed = Numeric_Offload.REVERSED
                .on(url)
                .call(many, new int[] {1}, new float[] {2}, new long[] {3});
        assert reversed.length == many.length && reversed[0] == 7 : reversed[0];
        Numeric_Offload.NOTHING.on(url).call();
    }

    /** One call for each item, on the node, and here and there at once. */
    public void testManyCallsAreSpreadAndInOrder() throws Exception {
        List<Integer> items = new ArrayList<>();
        for (int item = 0; item < 40; item++) {
            items.add(item);
        }
        List<double[]> here = Numeric_Offload.SCALED.map(items, (scaled, item) -> scaled.call(new double[] {item}, 2));
        if (node == null) {
            return;
        }
        List<double[]> there =
                Numeric_Offload.SCALED.on(url).map(items, (scaled, item) -> scaled.call(new double[] {item}, 2));
        for (int item : items) {
            assert here.get(item)[0] == 2 * item && there.get(item)[0] == 2 * item : item;
        }
        try {
            Numeric_Offload.FAILING.on(url).map(items, (failing, item) -> failing.call(item));
            assert false;
        } catch (ExecutionException thrown) {
            assert !(thrown.getCause() instanceof LighterageException) || thrown.getCause() instanceof RemoteException;
        }
    }

    /** A unit that is reused keeps static fields. */
    public void testAUnitMayServeManyCalls() throws Exception {
        if (node == null) {
            return;
        }
        int first = Numeric_Offload.COUNTED.on(url).call();
        int most = first;
        for (int turn = 0; turn < 20; turn++) {
            most = Math.max(most, Numeric_Offload.COUNTED.on(url).call());
        }
        assert most > first : most;
    }

    /** What a method throws arrives as itself, with the stack that it had there. */
    public void testWhatIsThrownArrivesAsItself() throws Exception {
        if (node == null) {
            return;
        }
        try {
            Numeric_Offload.FAILING.on(url).call(0);
            assert false;
        } catch (Numeric.TooMuch declared) {
            assert declared.getMessage().equals("it is too much");
            assert declared.getStackTrace()[0].getMethodName().equals("failing") : declared.getStackTrace()[0];
        }
        try {
            Numeric_Offload.FAILING.on(url).call(1);
            assert false;
        } catch (IllegalStateException usual) {
            assert usual.getCause() instanceof IOException && usual.getCause().getMessage().equals("inner");
        }
        try {
            Numeric_Offload.FAILING.on(url).call(2);
            assert false;
        } catch (IndexOutOfBoundsException usual) {
            assert usual.getMessage().contains("2");
        }
        try {
            Numeric_Offload.FAILING.on(url).call(9);
            assert false;
        } catch (RemoteException hidden) {
            assert hidden.name.equals("app.Numeric$Hidden") && hidden.code().equals("L8006") : hidden;
        }
    }

    /** A deadline binds, and so does the time that a method may take on a node. */
    public void testDeadlinesBind() throws Exception {
        if (node == null) {
            return;
        }
        Numeric_Offload.SLOW.on(url).call(1);
        try {
            Numeric_Offload.SLOW.on(url).deadlineMs(200).call(30_000);
            assert false;
        } catch (TimeIsUp late) {
            assert late.code().equals("L8005");
        }
        Future<Long> pending = Numeric_Offload.SLOW.on(url).submit(30_000);
        assert pending.cancel(true) && pending.isCancelled();
        assert Numeric_Offload.SLOW.on(url).submit(2).get() == 2;
    }

    /** The first call runs here, and the method is put on the node meanwhile; what is decided is explained. */
    public void testCallsAreDecidedAndExplained() throws Exception {
        if (node == null) {
            return;
        }
        for (int turn = 0; turn < 30; turn++) {
            assert Numeric_Offload.slow(5) == 5;
        }
        String table = Numeric_Offload.SLOW.explain(5).toString();
        assert table.contains("app.Numeric::slow") && table.contains(node.name) : table;
        System.out.println(table);
    }

    /** A lambda runs on the node with its variables, and what it throws comes back. */
    public void testLambdasRunOnANode() throws Exception {
        double[] numbers = {1, 2};
        double factor = 3;
        assert Lambda.of(() -> Numeric.scaled(numbers, factor)).call()[1] == 6;
        try {
            Lambda.of(this::toString).call();
            assert false;
        } catch (DoesNotTravel stays) {
            assert stays.getMessage().contains("object around it") : stays;
        }
        if (node == null) {
            return;
        }
        for (int turn = 1; turn < 3; turn++) {
            double times = turn;
            double[] there = Lambda.of(() -> Numeric.scaled(numbers, times)).on(url).call();
            assert there[1] == 2 * times : there[1];
        }
        List<String> words = Arrays.asList("a", "b");
        Map<String, Object> map = Collections.singletonMap("k", words);
        List<Object> listed = Lambda.of(() -> Arrays.<Object>asList(words.get(1), map.get("k"), 1))
                .on(url)
                .submit()
                .get();
        assert listed.equals(Arrays.asList("b", words, 1L)) : listed;
        try {
            Lambda.of(() -> words.get(7)).on(url).call();
            assert false;
        } catch (IndexOutOfBoundsException usual) {
            assert usual.getStackTrace().length > 0;
        }
        try {
            Thread thread = Thread.currentThread();
            Lambda.of(() -> thread.getName()).on(url).call();
            assert false;
        } catch (DoesNotTravel stays) {
            assert stays.getMessage().contains("java.lang.Thread");
        }
    }

    /** Where there is no node a call runs here; one that must not says so. */
    public void testWithoutANodeCallsRunHere() {
        Lighterage.disconnect();
        assert Numeric_Offload.scaled(new double[] {3}, 3)[0] == 9;
        try {
            Numeric_Offload.SCALED.on("nowhere:1").call(new double[] {3}, 3);
            assert false;
        } catch (NoNode none) {
            assert none.code().equals("L8001");
        }
        try {
            Lighterage.connect("http://127.0.0.1:1", null);
            assert false;
        } catch (NodeUnreachable silent) {
            assert silent.code().equals("L1102");
        }
    }

    /** A node says no to code that is not there, in its own words. */
    public void testCodeThatDoesNotRunIsRefused() {
        if (node == null) {
            return;
        }
        Lighterage.code(new byte[] {1, 2, 3});
        try {
            Fresh_Offload.ADDED.on(url).call(1, 2);
            assert false;
        } catch (NodeRefused refused) {
            assert refused.code().equals("L2014") : refused;
        } catch (DoesNotTravel other) {
            throw new AssertionError(other);
        } finally {
            Lighterage.code(null);
        }
    }
}

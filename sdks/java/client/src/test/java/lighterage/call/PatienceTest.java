package lighterage.call;

import java.io.IOException;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Future;
import lighterage.Explanation;
import lighterage.LighterageException;
import lighterage.NodeRefused;
import lighterage.NodeUnreachable;
import lighterage.TimeIsUp;
import lighterage.code.Limits;
import lighterage.decide.Asked;
import lighterage.decide.Prediction;
import lighterage.decide.Stages;
import lighterage.places.Cancel;
import lighterage.places.Clock;
import lighterage.places.Node;
import lighterage.places.Nodes;
import lighterage.places.Silent;
import lighterage.places.StandIn;

/** A call waits for a node no longer than it may, and no node is asked again and again for what it cannot do. */
public final class PatienceTest {
    private static final Limits LIMITS = new Limits(300_000, 1 << 20, 1 << 20);
    private static final String HERE = "here";

    private final Nodes nodes = new Nodes(Collections.singletonMap("LIGHTER_DATA", "/nowhere"));
    private StandIn node;

    /** A node, to which all methods are sent as the same jar. */
    public void setUp() throws IOException {
        node = new StandIn();
        node.result = "there";
        nodes.connect(node.url(), null);
        Sources.name(new byte[] {1});
    }

    /** Ends it. */
    public void tearDown() {
        node.mayDeploy.countDown();
        node.close();
        nodes.disconnect();
        Sources.name(null);
    }

    private Caller caller(boolean isLocal) {
        Options options = Options.of(0, 1, isLocal, LIMITS, false);
        return new Caller(new Function(new Placed(), options), options, nodes);
    }

    /** The estimates of a device that had better hand the call on. */
    private void isSlowHere(double seconds) {
        synchronized (nodes) {
            for (int turn = 0; turn < 3; turn++) {
                nodes.engine().observeLocal("app.Work::placed", 1, seconds, null, false);
            }
        }
    }

    private void isQuickThere() {
        runsThere(1e-3);
    }

    private void runsThere(double seconds) {
        Stages stages = new Stages();
        stages.roundTrip = 1e-3;
        stages.run = seconds;
        stages.bytesUp = 100;
        stages.bytesDown = 100;
        synchronized (nodes) {
            Asked asked = new Asked("app.Work::placed", 1);
            nodes.engine().observeRemote(asked, node.name(), stages, Clock.now(), null, false);
        }
    }

    /** The next call finds what goes on. */
    public void testADeadlineBoundsTheWaitForADeploymentWhichGoesOn() throws Throwable {
        node.mayDeploy = new CountDownLatch(1);
        Caller caller = caller(false);
        double began = Clock.now();
        try {
            caller.with(caller.options().deadlineMs(200)).call(new Object[0]);
            assert false;
        } catch (TimeIsUp late) {
            assert late.isOfDeployment() && late.getMessage().contains("goes on getting it") : late;
        }
        assert Clock.now() - began < 10 : Clock.now() - began;
        node.mayDeploy.countDown();
        assert caller.with(caller.options().deadlineMs(20_000)).call(new Object[0]).equals("there");
        assert node.deployments.get() == 1 : node.deployments;
    }

    /** A call that may run here too, whose node is expected to take longer than the deadline. */
    public void testADeadlineBoundsACallThatMayRunHereToo() throws Throwable {
        node.mayDeploy = new CountDownLatch(1);
        Options options = Options.of(200, 1, true, LIMITS, false);
        Function function = new Function(new Placed(), options);
        Node place = nodes.all().get(0);
        function.prepareLater(place, nodes);
        while (function.awaited(place, Clock.now()) < 3) {
            Thread.sleep(10);
        }
        isSlowHere(30);
        isQuickThere();
        double began = Clock.now();
        try {
            new Caller(function, options, nodes).call(new Object[0]);
            assert false;
        } catch (TimeIsUp late) {
            assert late.isOfDeployment() : late;
        }
        assert Clock.now() - began < 2 : Clock.now() - began;
    }

    /** Who may run it elsewhere does not wait for minutes, and nothing is learnt of how long it runs there. */
    public void testACallRunsHereWhereADeploymentTakesTooLong() throws Throwable {
        node.mayDeploy = new CountDownLatch(1);
        Caller caller = caller(true);
        isSlowHere(2);
        isQuickThere();
        double before = there(caller).stage("run");
        double began = Clock.now();
        assert caller.call(new Object[0]).equals(HERE);
        assert Clock.now() - began < 30 : Clock.now() - began;
        assert there(caller).stage("run") <= 2 * before;
        // The node has had so long by now that it may need as long again.
        assert there(caller).wait > 0.6 : there(caller).wait;
    }

    /** It is left alone, and the call is not begun here after its deadline. */
    public void testANodeThatIsSilentUntilTheDeadlineHasFailed() throws Throwable {
        Options options = Options.of(700, 1, true, LIMITS, false);
        Function function = new Function(new Placed(), options);
        Node place = nodes.all().get(0);
        place.prepare(function.code(), Clock.now() + 30, new Cancel());
        isSlowHere(30);
        runsThere(2);
        int number = Integer.parseInt(node.name().split(":")[1]);
        node.close();
        Silent port = new Silent(number);
        try {
            new Caller(function, options, nodes).call(new Object[0]);
            assert false;
        } catch (NodeUnreachable silent) {
            assert place.isAway(Clock.now()) : silent;
        } finally {
            port.close();
        }
    }

    private Prediction there(Caller caller) {
        return caller.explain(new Object[0]).decision.at(node.name());
    }

    /** Whoever waits can be cancelled. */
    public void testWhoWaitsForADeploymentCanBeCancelled() throws Throwable {
        node.mayDeploy = new CountDownLatch(1);
        Future<Object> pending = caller(false).submit(new Object[0]);
        while (node.deployments.get() == 0) {
            Thread.yield();
        }
        assert pending.cancel(true) && pending.isCancelled();
        Cancel cancel = new Cancel();
        Thread other = new Thread(() -> {
            while (!cancel.isBusy()) {
                Thread.yield();
            }
            cancel.cancel();
        });
        other.start();
        Options options = caller(false).options();
        Call call = new Call(new Function(new Placed(), options), options, new Object[0], nodes, cancel);
        try {
            new Run(call).run();
            assert false;
        } catch (CancellationException cancelled) {
            assert node.calls.get() == 0;
        }
    }

    /** A function that is gone is deployed again, within the call's time. */
    public void testWhatIsGoneIsDeployedAgainInTheCallsTime() throws Throwable {
        Caller caller = caller(false);
        assert caller.call(new Object[0]).equals("there");
        node.forget();
        assert caller.call(new Object[0]).equals("there");
        assert node.deployments.get() == 2 : node.deployments;
        node.forget();
        node.mayDeploy = new CountDownLatch(1);
        try {
            caller.with(caller.options().deadlineMs(200)).call(new Object[0]);
            assert false;
        } catch (TimeIsUp late) {
            assert late.isOfDeployment() : late;
        }
    }

    /** A method that a node cannot finish is not begun there again and again. */
    public void testAMethodThatNodesNeverFinishIsNotTriedThereForEver() throws Throwable {
        for (int turn = 0; turn < 20; turn++) {
            node.refusedCalls.add(new StandIn.Problem(500, turn % 2 == 0 ? "L3003" : "L3011", false));
        }
        Options options = Options.of(0, 1, true, LIMITS, false);
        Function function = new Function(new Placed(), options);
        Caller caller = new Caller(function, options, nodes);
        nodes.all().get(0).prepare(function.code(), Clock.now() + 30, new Cancel());
        for (int turn = 0; turn < 6; turn++) {
            isSlowHere(30);
            assert caller.call(new Object[0]).equals(HERE);
        }
        assert node.calls.get() == 2 : node.calls;
        assert caller.explain(new Object[0]).toString().contains("its last calls on nodes came to nothing");
        // Whoever names a node has it there.
        Explanation named = caller.with(caller.options().on(node.name())).explain(new Object[0]);
        assert named.decision.place.equals(node.name()) : named;
        assert !named.toString().contains("its last calls on nodes came to nothing") : named;
    }

    /** Somebody else may deploy the same code; that is waited for, and said as it is where it does not end. */
    public void testADeploymentBySomebodyElseIsWaitedFor() throws Throwable {
        node.refusedDeployments.add(new StandIn.Problem(409, "L2012", false));
        node.refusedDeployments.add(new StandIn.Problem(409, "L2012", true));
        assert caller(false).call(new Object[0]).equals("there");
        assert node.deployments.get() == 3 : node.deployments;
    }

    /** What a node says in the stream of a deployment is final only where its status is. */
    public void testARefusalForNowIsNotFinal() throws Throwable {
        node.refusedDeployments.add(new StandIn.Problem(503, "L3013", true));
        Caller caller = caller(false);
        try {
            caller.call(new Object[0]);
            assert false;
        } catch (NodeRefused refused) {
            assert refused.status == 503 && refused.isOfDeployment() : refused;
        }
        assert caller.call(new Object[0]).equals("there");
        for (int status : new int[] {422, 200}) {
            node.refusedDeployments.add(new StandIn.Problem(status, "L2013", true));
            Options options = Options.of(0, 1, false, new Limits(status, 1 << 20, 1 << 20), false);
            Function function = new Function(new Placed(), options);
            try {
                new Caller(function, options, nodes).call(new Object[0]);
                assert false;
            } catch (NodeRefused refused) {
                assert refused.status == 422 && !function.mayRunOn(nodes.all().get(0)) : refused;
            }
            Caller again = new Caller(function, options, nodes);
            assert again.explain(new Object[0]).toString().contains("not now");
            // Whoever names the node asks it again; what it takes then it gets.
            assert again.call(new Object[0]).equals("there");
            assert function.mayRunOn(nodes.all().get(0));
            assert !again.explain(new Object[0]).toString().contains("not now");
        }
    }

    /** A node that could not take a method for now is not asked again at once, and is not taken for silent. */
    public void testABusyNodeIsLeftAloneForAWhile() throws Throwable {
        for (int turn = 0; turn < 20; turn++) {
            node.refusedDeployments.add(new StandIn.Problem(503, "L3013", turn % 2 == 0));
        }
        Options options = Options.of(0, 1, true, LIMITS, false);
        Function function = new Function(new Placed(), options);
        Node place = nodes.all().get(0);
        function.prepareLater(place, nodes);
        while (node.refusedDeployments.size() == 20 || function.awaited(place, Clock.now()) > 0) {
            Thread.yield();
        }
        for (int turn = 0; turn < 100; turn++) {
            function.prepareLater(place, nodes);
            Thread.yield();
        }
        assert node.deployments.get() == 1 : node.deployments;
        assert function.mayRunOn(place) && !place.isAway(Clock.now());
    }

    /** Nor does each call that might run there ask it again; one that names it does. */
    public void testABusyNodeCostsOneCallADeployment() throws Throwable {
        for (int turn = 0; turn < 3; turn++) {
            node.refusedDeployments.add(new StandIn.Problem(503, "L3013", true));
        }
        Options options = Options.of(0, 1, true, LIMITS, false);
        Function function = new Function(new Placed(), options);
        Caller caller = new Caller(function, options, nodes);
        Node place = nodes.all().get(0);
        for (int turn = 0; turn < 6; turn++) {
            isSlowHere(30);
            assert caller.call(new Object[0]).equals(HERE);
        }
        assert node.deployments.get() == 1 : node.deployments;
        assert function.isPaused(place, Clock.now()) && !function.isPaused(place, Clock.now() + 5);
        assert caller.explain(new Object[0]).toString().contains("could not take the method");
        Caller named = caller.with(caller.options().on(node.name()));
        for (int turn = 0; turn < 2; turn++) {
            try {
                named.call(new Object[0]);
                assert false;
            } catch (NodeRefused refused) {
                assert !function.isPaused(place, Clock.now() + 5) : "one pause is not made longer";
            }
        }
        assert named.call(new Object[0]).equals("there");
        assert !function.isPaused(place, Clock.now());
        assert !caller.explain(new Object[0]).toString().contains("could not take the method");
    }

    /** An image that is too large for a node is sent once; it is no call that is too large. */
    public void testAnImageThatIsTooLargeIsSentOnce() throws Throwable {
        node.refusedImages = new StandIn.Problem(413, "L2005", false);
        Options options = Options.of(0, 1, true, LIMITS, false);
        Function function = new Function(new Placed(), options);
        Caller caller = new Caller(function, options, nodes);
        for (int turn = 0; turn < 4; turn++) {
            isSlowHere(30);
            assert caller.call(new Object[0]).equals(HERE);
            function.prepareLater(nodes.all().get(0), nodes);
        }
        assert node.images.get() == 1 : node.images;
        LighterageException refusal = function.refusal(nodes.all().get(0));
        assert refusal instanceof NodeRefused && refusal.code().equals("L2005") && refusal.isOfDeployment() : refusal;
        assert !function.vain.isResting(Clock.now());
    }

    /** It rests for a time that doubles; one call that was not in vain ends that. */
    public void testOneCallInVainKeepsNoMethodHere() {
        Vain vain = new Vain();
        for (int now = 0; now < 10; now++) {
            vain.begin(now);
            assert !vain.isResting(now);
            vain.end();
        }
        vain.begin(10);
        vain.begin(10);
        assert vain.isResting(14) && !vain.isResting(15);
        vain.begin(12);
        assert !vain.isResting(15) : "what began before the rest does not make it longer";
        vain.begin(15);
        assert vain.isResting(24) && !vain.isResting(25);
        for (int turn = 0; turn < 20; turn++) {
            vain.begin(1_000 * (turn + 1));
        }
        assert vain.isResting(20_299) && !vain.isResting(20_300);
    }

    private static final class Placed extends Table {
        private Placed() {
            super("app.Work::placed");
        }

        @Override
        protected Object run(Object[] arguments) {
            return HERE;
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

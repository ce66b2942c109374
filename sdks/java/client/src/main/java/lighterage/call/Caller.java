package lighterage.call;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.Future;
import lighterage.Explanation;
import lighterage.LighterageException;
import lighterage.OnMainThread;
import lighterage.decide.Decision;
import lighterage.places.Background;
import lighterage.places.Cancel;
import lighterage.places.Clock;
import lighterage.places.Node;
import lighterage.places.Nodes;

/** What a generated class does with its method: call it, later or explained. Safe for threads. */
public final class Caller {
    /** Calls of one map that a node has at once: it is not known how many processors it has. */
    private static final int CALLS_A_NODE = 4;

    private final Function function;
    private final Options options;
    private final Nodes nodes;

    /** Of this method, among these nodes. */
    public Caller(Function function, Options options, Nodes nodes) {
        this.function = function;
        this.options = options;
        this.nodes = nodes;
    }

    /** The same with other options. */
    public Caller with(Options other) {
        return new Caller(function, other, nodes);
    }

    /** The same for each call that may run at once: bound to here, if it may run here, and to each node. */
    public List<Caller> places() {
        List<Caller> places = new ArrayList<>();
        List<Node> found =
                options.isLocal ? nodes.usable(options.on, Clock.now()) : nodes.chosen(options.on);
        for (Node node : found) {
            places.addAll(Collections.nCopies(CALLS_A_NODE, with(options.on(node.name))));
        }
        if (options.isLocal) {
            int cores = Runtime.getRuntime().availableProcessors();
            places.addAll(0, Collections.nCopies(cores, with(options.here())));
        }
        return places;
    }

    /** Whether it runs here and nowhere else. */
    public boolean isHere() {
        return options.isHere;
    }

    /** Whether all nodes that it may run on failed lately and should be left alone. */
    public boolean isAway() {
        double now = Clock.now();
        for (Node node : nodes.all()) {
            if (node.isAmong(options.on) && !node.isAway(now)) {
                return false;
            }
        }
        return !options.isHere;
    }

    /** How it is offloaded. */
    public Options options() {
        return options;
    }

    /** The result. Throws what the method throws, or a LighterageException. */
    public Object call(Object[] arguments) throws Throwable {
        if (MainThread.isThis()) {
            throw new OnMainThread(function.name() + " was called on the main thread, which would stand still; "
                    + "use submit, or another thread");
        }
        return run(arguments, new Cancel());
    }

    private Object run(Object[] arguments, Cancel cancel) throws Throwable {
        return new Run(new Call(function, options, arguments, nodes, cancel)).run();
    }

    /** The same in another thread. */
    public <R> Future<R> submit(Object[] arguments) {
        Cancel cancel = new Cancel();
        Pending<R> pending = new Pending<>(() -> {
            try {
                @SuppressWarnings("unchecked")
                R result = (R) run(arguments, cancel);
                return result;
            } catch (Exception | Error thrown) {
                throw thrown;
            } catch (Throwable strange) {
                throw new Exception(strange);
            }
        }, cancel);
        Background.call(pending);
        return pending;
    }

    /** Where it would run, and why. Runs nothing. */
    public Explanation explain(Object[] arguments) {
        Call call = new Call(function, options, arguments, nodes, new Cancel());
        double now = Clock.now();
        List<Node> usable = nodes.usable(options.on, now);
        List<String> notes = new ArrayList<>();
        for (Node node : nodes.all()) {
            LighterageException refusal = function.refusal(node);
            if (!usable.contains(node)) {
                boolean isAmong = node.isAmong(options.on);
                String problem = node.problem().isEmpty() ? "has not answered yet" : node.problem();
                notes.add(node.name + (isAmong ? ": " + problem : " is none of those it may run on"));
            } else if (refusal != null) {
                notes.add(node.name + ": " + refusal.getMessage());
            } else if (options.isLocal && function.isPaused(node, now)) {
                notes.add(node.name + ": could not take the method, and is asked again in a while");
            }
        }
        if (options.isLocal && function.vain.isResting(now)) {
            notes.add("stays here for a while: its last calls on nodes came to nothing");
        }
        Decision decision;
        synchronized (nodes) {
            decision = nodes.engine().decide(call.question(usable, now));
        }
        return new Explanation(function.name(), decision, call.size, call.bytes, notes);
    }
}

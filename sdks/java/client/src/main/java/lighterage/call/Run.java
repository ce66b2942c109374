package lighterage.call;

import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import lighterage.LighterageException;
import lighterage.NoNode;
import lighterage.TimeIsUp;
import lighterage.decide.Decision;
import lighterage.decide.Prediction;
import lighterage.decide.Question;
import lighterage.places.Clock;
import lighterage.places.Node;

/**
 * Runs one call where it was decided to, here or on a node, and wherever it still can when that fails.
 *
 * <p>What a unit does reaches nobody but through its result, so running a call again is always safe as far as nodes go.
 */
final class Run {
    /** A method that is done here sooner than this is not worth putting on a node. */
    private static final double WORTH_SECONDS = 0.5e-3;
    /** Seconds that a node is waited for at least, before the call is run here instead. */
    private static final double PATIENCE_SECONDS = 1.0;

    private final Call call;
    private final double began = Clock.now();

    Run(Call call) {
        this.call = call;
    }

    /** The result. Throws what the method throws, or a LighterageException. */
    Object run() throws Throwable {
        if (!call.options.isLocal) {
            return onNodes();
        }
        if (call.options.isHere || call.nodes.all().isEmpty()) {
            return call.function.table.run(call.arguments);
        }
        List<Node> usable = call.nodes.usable(call.options.on, began);
        Decision decision = decide(usable);
        if (decision.place.equals(Prediction.LOCAL)) {
            return here(decision, usable);
        }
        return there(decision, named(usable, decision.place));
    }

    private Decision decide(List<Node> usable) {
        Question question = call.question(usable, Clock.now());
        synchronized (call.nodes) {
            return call.nodes.engine().decide(question);
        }
    }

    /** A plain call, timed. */
    private Object here(Decision decision, List<Node> usable) throws Throwable {
        double from = Clock.now();
        Object result = call.function.table.run(call.arguments);
        double took = Clock.now() - from;
        synchronized (call.nodes) {
            call.nodes.engine().observeLocal(call.function.name(), call.size, took, decision, false);
            if (!call.nodes.engine().knowsResult(call.function.name())) {
                double bytes = Measure.of(new Object[] {result}).bytes;
                call.nodes.engine().observeResult(call.function.name(), call.size, bytes);
            }
        }
        if (took >= WORTH_SECONDS) {
            for (Node node : usable) {
                call.function.prepareLater(node, call.nodes);
            }
        }
        return result;
    }

    private Object there(Decision decision, Node node) throws Throwable {
        Prediction expected = decision.chosen();
        Prediction local = decision.predictions.get(0);
        double deadline = call.options.deadline();
        double patience = Math.max(2 * expected.p95 + local.p95, expected.wait + PATIENCE_SECONDS);
        if (!Double.isNaN(deadline)) {
            patience = Math.min(patience, Math.max(deadline - local.p95, expected.seconds));
        }
        double until = Math.min(began + Math.min(patience, call.timeLimit()), wantedBy());
        Attempt attempt = new Attempt(call, node, until, decision);
        Outcome outcome;
        try {
            outcome = attempt.run();
        } catch (LighterageException error) {
            return failed(attempt, error);
        }
        return outcome.get();
    }

    /** What is left when a node did not do it: another one that is better than here, else here. */
    private Object failed(Attempt attempt, LighterageException error) throws Throwable {
        double now = Clock.now();
        if (error instanceof TimeIsUp) {
            Prediction expected = attempt.decision.chosen();
            if (!error.isOfDeployment()) {
                synchronized (call.nodes) {
                    call.nodes.engine()
                            .observeRemoteLonger(call.function.name(), call.size, expected, now - began, now);
                }
            }
        }
        if (isOver(error)) {
            throw error;
        }
        Set<Node> tried = new HashSet<>(Collections.singleton(attempt.node));
        LighterageException last = error;
        for (int turn = 0; turn < call.options.retries && Attempt.isRetried(last); turn++) {
            List<Node> left = new ArrayList<>(call.nodes.usable(call.options.on, Clock.now()));
            left.removeAll(tried);
            Decision decision = left.isEmpty() ? null : decide(left);
            if (decision == null || decision.place.equals(Prediction.LOCAL)) {
                break;
            }
            Node node = named(left, decision.place);
            tried.add(node);
            Outcome outcome;
            try {
                outcome = new Attempt(call, node, Math.min(until(), wantedBy()), decision).run();
            } catch (LighterageException next) {
                last = next;
                continue;
            }
            return outcome.get();
        }
        if (isOver(last)) {
            throw last;
        }
        return here(null, Collections.<Node>emptyList());
    }

    /** On nodes and nowhere else: on the one that is expected to be soonest, then on the next. */
    private Object onNodes() throws Throwable {
        List<Node> nodes = soonestFirst(call.nodes.chosen(call.options.on));
        LighterageException last = new NoNode("no node is known");
        for (Node node : nodes.subList(0, 1 + Math.min(nodes.size() - 1, call.options.retries))) {
            Outcome outcome;
            try {
                outcome = new Attempt(call, node, Math.min(until(), wantedBy()), null).run();
            } catch (LighterageException error) {
                last = error;
                if (Attempt.isRetried(error) && !isOver(error)) {
                    continue;
                }
                break;
            }
            return outcome.get();
        }
        throw last;
    }

    private List<Node> soonestFirst(List<Node> nodes) {
        List<Node> sorted = new ArrayList<>();
        if (nodes.size() == 1) {
            return nodes;
        }
        double now = Clock.now();
        List<String> names = new ArrayList<>();
        for (Node node : nodes) {
            names.add(node.name);
        }
        List<Prediction> predictions;
        synchronized (call.nodes) {
            Question question = new Question(call.function.name(), call.size, call.bytes, names, now);
            predictions = new ArrayList<>(call.nodes.engine().predict(question));
        }
        predictions.remove(0);
        Collections.sort(predictions, (one, other) -> Double.compare(one.seconds, other.seconds));
        for (boolean isAway : new boolean[] {false, true}) {
            for (Prediction prediction : predictions) {
                Node node = named(nodes, prediction.place);
                if (node.isAway(now) == isAway) {
                    sorted.add(node);
                }
            }
        }
        return sorted;
    }

    private double until() {
        return Clock.now() + call.timeLimit();
    }

    private double wantedBy() {
        double deadline = call.options.deadline();
        return Double.isNaN(deadline) ? Double.POSITIVE_INFINITY : began + deadline;
    }

    /** Whether the deadline has passed while a node was waited for. */
    private boolean isOver(LighterageException error) {
        boolean isOfWaiting = error instanceof TimeIsUp || Attempt.isOfConnection(error);
        return isOfWaiting && Clock.now() >= wantedBy();
    }

    private static Node named(List<Node> nodes, String name) {
        for (Node node : nodes) {
            if (node.name.equals(name)) {
                return node;
            }
        }
        throw new AssertionError("the engine chose " + name + ", which it was not asked about");
    }
}

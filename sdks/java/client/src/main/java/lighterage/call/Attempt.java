package lighterage.call;

import java.util.Arrays;
import java.util.List;
import java.util.Map;
import lighterage.CallTooLarge;
import lighterage.DoesNotTravel;
import lighterage.LighterageException;
import lighterage.NodeRefused;
import lighterage.NodeUnproven;
import lighterage.NodeUnreachable;
import lighterage.ReplyBroken;
import lighterage.TimeIsUp;
import lighterage.code.Code;
import lighterage.decide.Asked;
import lighterage.decide.Decision;
import lighterage.decide.Place;
import lighterage.decide.Stages;
import lighterage.places.Clock;
import lighterage.places.Node;
import lighterage.places.Reply;
import lighterage.travel.Calls;
import lighterage.travel.Thrown;

/**
 * One call of one node, learnt from.
 *
 * <pre>
 * code ─▶ prepare ─▶ write ─▶ ask ─▶ read ─▶ learn
 * jars    on the node  frame   Node   frame   stages, by Server-Timing
 * </pre>
 *
 * <p>Which node, and what to do when it fails, is not decided here.
 */
final class Attempt {
    private static final List<Integer> ELSEWHERE = Arrays.asList(401, 403, 404, 422);

    private final Call call;
    final Node node;
    private double until;
    /** What it follows from; null where a node was asked for. */
    final Decision decision;

    /** A call at a node, until `until` of {@link Clock}. */
    Attempt(Call call, Node node, double until, Decision decision) {
        this.call = call;
        this.node = node;
        this.until = until;
        this.decision = decision;
    }

    /** Throws a LighterageException where the node did not do it; what the method threw is in the outcome. */
    Outcome run() {
        try {
            Outcome outcome = asked();
            call.function.vain.end();
            return outcome;
        } catch (LighterageException error) {
            if (isInVain(error)) {
                call.function.vain.begin(Clock.now());
            }
            throw error;
        }
    }

    private Outcome asked() {
        Code code = call.function.code();
        try {
            prepare(code);
            double began = Clock.now();
            byte[] frame = written();
            if (frame.length > code.limits.bodyBytes) {
                throw new CallTooLarge("the arguments of " + call.function.name() + " take " + frame.length
                        + " bytes, bodyBytes is " + code.limits.bodyBytes);
            }
            double wrote = Clock.now();
            Reply reply = node.call(code, frame, until, call.cancel);
            double read = Clock.now();
            Outcome outcome = outcome(reply);
            learn(stages(reply, frame.length, wrote - began, Clock.now() - read));
            return outcome;
        } catch (NodeUnreachable | ReplyBroken | NodeUnproven silent) {
            call.nodes.failed(node, silent);
            throw silent;
        } catch (NodeRefused refused) {
            call.function.refused(node, refused);
            throw refused;
        }
    }

    /**
     * Puts the method on the node. Where nothing else would do the call, and nobody said when it is wanted, that may
     * take as long as it takes, and is no part of the call's time.
     */
    private void prepare(Code code) {
        if (node.isReady(code.name)) {
            return;
        }
        boolean isPatient = Double.isNaN(call.options.deadline()) && !call.options.isLocal;
        double began = Clock.now();
        node.prepare(code, isPatient ? Double.POSITIVE_INFINITY : until, call.cancel);
        call.function.taken(node);
        if (isPatient) {
            until += Clock.now() - began;
        }
    }

    /** The frame of the call. What goes wrong here is none of what the method throws. */
    private byte[] written() {
        try {
            return Calls.write(call.function.table.lower(call.arguments));
        } catch (LighterageException said) {
            throw said;
        } catch (RuntimeException strange) {
            String why = "the arguments of " + call.function.name() + " cannot be written: " + strange;
            throw (DoesNotTravel) new DoesNotTravel(why).initCause(strange);
        }
    }

    private Outcome outcome(Reply reply) {
        Object value = Calls.read(reply.body, node.url);
        if (value instanceof Thrown) {
            Thrown thrown = (Thrown) value;
            Throwable own = own(thrown);
            return Outcome.threw(own == null ? thrown.asRemote() : thrown.onto(own));
        }
        try {
            return Outcome.returned(call.function.table.lift(value));
        } catch (LighterageException said) {
            throw said;
        } catch (RuntimeException strange) {
            String why = node.url + " sent a result of another type: " + strange.getMessage();
            throw (ReplyBroken) new ReplyBroken(why).initCause(strange);
        }
    }

    /** An exception that the method declares; null where it declares none of that name, or none can be made. */
    private Throwable own(Thrown thrown) {
        try {
            return call.function.table.thrown(thrown.name, thrown.message);
        } catch (RuntimeException strange) {
            return null;
        }
    }

    private void learn(Stages stages) {
        Asked asked = new Asked(call.function.name(), call.size);
        synchronized (call.nodes) {
            call.nodes.engine().observeRemote(asked, node.name, stages, Clock.now(), decision, false);
        }
    }

    /**
     * Where the time of a call went, from this machine's clock and the node's `Server-Timing`.
     *
     * <p>What is neither the node's nor the reply's transfer is round trip and upload; which, the expected round trip
     * says.
     */
    private Stages stages(Reply reply, int bytesUp, double encoded, double decoded) {
        Map<String, Double> timing = reply.timing();
        double there = 0.0;
        for (String name : new String[] {"queue", "start", "decode", "run", "encode"}) {
            there += seconds(timing, name);
        }
        double roundTrip;
        synchronized (call.nodes) {
            roundTrip = call.nodes.engine().place(node.name).roundTrip().guess(Clock.now()).middle();
        }
        double network = Math.max(reply.headAt - reply.beganAt - there, 1e-5);
        boolean isLarge = bytesUp >= Place.RATE_BYTES_MIN;
        Stages stages = new Stages();
        stages.encode = encoded;
        stages.up = isLarge ? Math.max(network - roundTrip, network / 10) : 0.0;
        stages.roundTrip = isLarge ? Double.NaN : network;
        stages.roundTripExpected = isLarge ? network - stages.up : 0.0;
        stages.run = seconds(timing, "run");
        stages.queue = Math.max(there - stages.run, 0.0);
        stages.down = reply.wholeAt - reply.headAt;
        stages.decode = decoded;
        stages.bytesUp = bytesUp;
        stages.bytesDown = reply.body.length;
        stages.bytesEstimated = (long) call.bytes;
        return stages;
    }

    private static double seconds(Map<String, Double> timing, String name) {
        Double found = timing.get(name);
        return found == null ? 0.0 : found;
    }

    /** Whether another node may do it. */
    static boolean isRetried(LighterageException error) {
        if (error instanceof NodeRefused) {
            NodeRefused refused = (NodeRefused) error;
            return refused.isBusy() || refused.isOfDeployment() || ELSEWHERE.contains(refused.status);
        }
        return isOfConnection(error);
    }

    /** Whether nobody answered, or nonsense. */
    static boolean isOfConnection(RuntimeException error) {
        return error instanceof NodeUnreachable || error instanceof ReplyBroken || error instanceof NodeUnproven;
    }

    /** Whether the node did what it could, and another time, or another node, would not help. */
    private static boolean isInVain(LighterageException error) {
        return !(isRetried(error) || error.isOfDeployment() || error instanceof TimeIsUp);
    }
}

package lighterage.call;

import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import lighterage.DoesNotTravel;
import lighterage.LighterageException;
import lighterage.NodeRefused;
import lighterage.code.Code;
import lighterage.places.Background;
import lighterage.places.Clock;
import lighterage.places.Node;
import lighterage.places.Nodes;

/** A method that is offloaded: its code as nodes get it, and which of them take it. Safe for threads. */
public final class Function {
    /** Seconds until a node that could not take it is asked again, if it may: after the first time, and at most. */
    private static final double AGAIN_SECONDS = 5.0;
    private static final double AGAIN_SECONDS_MAX = 300.0;

    /** What it does and how its values travel. */
    final Table table;
    /** Its calls that ran on nodes and brought nothing. */
    final Vain vain = new Vain();
    private final Options options;
    /** Nodes that it is being put on. */
    private final Set<Node> preparing = new HashSet<>();
    /** By node: for how long it was left alone last. */
    private final Map<Node, Pause> pauses = new ConcurrentHashMap<>();
    private volatile Code code;
    private volatile DoesNotTravel stays;
    /** Of the sources that had no code. */
    private volatile int staysVersion;

    private static final class Pause {
        private final double seconds;
        private final double until;

        private Pause(double seconds, double until) {
            this.seconds = seconds;
            this.until = until;
        }
    }

    /** The method of this table; of the options its limits and its units count. */
    public Function(Table table, Options options) {
        this.table = table;
        this.options = options;
    }

    /** `package.Class::method`. */
    public String name() {
        return table.entry;
    }

    /** Whether the method is on the node. */
    boolean isReady(Node node) {
        Code made = code;
        return made != null && node.isReady(made.name);
    }

    /** Seconds for which the method has been on its way to the node; 0 where it is not. */
    double awaited(Node node, double now) {
        Code made = code;
        return made == null ? 0.0 : node.awaited(made.name, now);
    }

    /** Whether calls may go to the node, as far as is known. */
    boolean mayRunOn(Node node) {
        return refusal(node) == null;
    }

    /** Whether the node could not take it a while ago, and is left alone until it may, or has taken it. */
    boolean isPaused(Node node, double now) {
        Pause last = pauses.get(node);
        return last != null && now < last.until && !isReady(node);
    }

    /** Why it does not run on the node, where that is known; else null. */
    LighterageException refusal(Node node) {
        DoesNotTravel own = stays();
        return own != null ? own : code == null ? null : node.refusal(code.name);
    }

    /** Why its code cannot be had, as far as is known; else null. */
    private DoesNotTravel stays() {
        return stays != null && staysVersion == Sources.version() ? stays : null;
    }

    /** The code, made once. Throws DoesNotTravel where it cannot be had. */
    Code code() {
        Code made = code;
        if (made != null) {
            return made;
        }
        synchronized (this) {
            if (stays() != null) {
                throw stays();
            }
            if (code == null) {
                int version = Sources.version();
                String type = table.entry.substring(0, table.entry.indexOf("::"));
                try {
                    code = new Code(table.entry, Sources.jars(type, table.loader()), options.limits, options.isReused);
                } catch (DoesNotTravel error) {
                    staysVersion = version;
                    stays = error;
                    throw error;
                }
            }
            return code;
        }
    }

    /** Puts the method on a node in the background. */
    void prepareLater(Node node, Nodes nodes) {
        if (!mayRunOn(node) || isReady(node) || isPaused(node, Clock.now())) {
            return;
        }
        synchronized (preparing) {
            if (!preparing.add(node)) {
                return;
            }
        }
        Background.call(() -> {
            boolean isBegun = false;
            try {
                node.prepareLater(code(), problem -> prepared(node, nodes, problem));
                isBegun = true;
            } catch (DoesNotTravel stay) {
                return;
            } finally {
                if (!isBegun) {
                    forget(node);
                }
            }
        });
    }

    private void prepared(Node node, Nodes nodes, RuntimeException problem) {
        try {
            if (problem == null) {
                taken(node);
            } else if (problem instanceof NodeRefused) {
                refused(node, (NodeRefused) problem);
            } else if (Attempt.isOfConnection(problem)) {
                nodes.failed(node, (LighterageException) problem);
            }
        } finally {
            forget(node);
        }
    }

    /** The node has the method. */
    void taken(Node node) {
        pauses.remove(node);
    }

    /** The node is left alone for a while, where it could not take the method but may later. */
    void refused(Node node, NodeRefused refused) {
        if (refused.isOfDeployment() && mayRunOn(node)) {
            pauseAfter(node);
        }
    }

    /** All who waited for one deployment come here: that is one pause. */
    private void pauseAfter(Node node) {
        double now = Clock.now();
        synchronized (pauses) {
            if (!isPaused(node, now)) {
                Pause last = pauses.get(node);
                double twice = last == null ? 0.0 : 2 * last.seconds;
                double seconds = Math.min(Math.max(twice, AGAIN_SECONDS), AGAIN_SECONDS_MAX);
                pauses.put(node, new Pause(seconds, now + seconds));
            }
        }
    }

    private void forget(Node node) {
        synchronized (preparing) {
            preparing.remove(node);
        }
    }
}

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
    /** Nodes that it is being put on, or that are not asked to take it for a while. */
    private final Set<Node> preparing = new HashSet<>();
    /** By node: for how many seconds it was left alone last. */
    private final Map<Node, Double> pauses = new ConcurrentHashMap<>();
    private volatile Code code;
    private volatile DoesNotTravel stays;
    /** Of the sources that had no code. */
    private volatile int staysVersion;

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
        if (!mayRunOn(node) || isReady(node)) {
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
        double pause = 0.0;
        try {
            if (problem == null) {
                pauses.remove(node);
            } else if (problem instanceof NodeRefused) {
                pause = refusal(node) == null ? pauseAfter(node) : 0.0;
            } else if (Attempt.isOfConnection(problem)) {
                nodes.failed(node, (LighterageException) problem);
            }
        } finally {
            if (pause > 0) {
                Background.after(pause, () -> forget(node));
            } else {
                forget(node);
            }
        }
    }

    /** For how many seconds the node is left alone, which could not take it but may later. */
    private double pauseAfter(Node node) {
        Double last = pauses.get(node);
        double pause = Math.min(Math.max(last == null ? 0.0 : 2 * last, AGAIN_SECONDS), AGAIN_SECONDS_MAX);
        pauses.put(node, pause);
        return pause;
    }

    private void forget(Node node) {
        synchronized (preparing) {
            preparing.remove(node);
        }
    }
}

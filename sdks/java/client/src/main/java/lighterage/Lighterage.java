package lighterage;

import java.util.List;
import lighterage.call.Sources;
import lighterage.decide.Policy;
import lighterage.places.Node;
import lighterage.places.Nodes;

/**
 * The nodes of this process, and the code that they are sent.
 *
 * <p>Nodes that the environment names (`LIGHTERAGE_NODES`, `LIGHTER_NODE`, or the node of this machine's data folder)
 * are found without a word. Until one has answered, calls run here.
 */
public final class Lighterage {
    private static final Nodes NODES = new Nodes(System.getenv());

    private Lighterage() {}

    /**
     * Adds a node, `http://host:port` or `https://host:port`, with its token (null where it wants none), and asks it
     * who it is, which takes at most some seconds. Nodes of the environment are not looked for any more.
     *
     * <p>Throws {@link ConfigInvalid} where that is no address, or the token would travel unencrypted beyond this
     * machine; {@link NodeUnreachable}, {@link TimeIsUp} or {@link NodeRefused} where the node is none that can be
     * used.
     */
    public static Node connect(String url, String token) {
        return NODES.connect(url, token);
    }

    /** Forgets all nodes: calls run here. */
    public static void disconnect() {
        NODES.disconnect();
    }

    /** Every node that is known, whether it answers or not. */
    public static List<Node> nodes() {
        return NODES.all();
    }

    /** How places are chosen from now on; what was learnt is forgotten. */
    public static void policy(Policy policy) {
        NODES.policy(policy);
    }

    /**
     * The jar with the class files of all offloaded methods and of what they use, for machines without a class path: an
     * Android application has it among its assets. Class files of Java 17 or older; at most 32 MiB.
     */
    public static void code(byte[] jar) {
        Sources.name(jar);
    }

    static Nodes known() {
        return NODES;
    }
}

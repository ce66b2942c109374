package lighterage.places;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import lighterage.LighterageException;
import lighterage.NoNode;
import lighterage.decide.Engine;
import lighterage.decide.Place;
import lighterage.decide.Policy;

/**
 * What all offloaded methods of a process share: the nodes, and what is known of them. Safe for threads.
 *
 * <p>Nodes that the environment names are looked up in the background when the first method is called; until they have
 * answered, calls run here.
 */
public final class Nodes {
    /** Seconds after which a node that calls are decided about is asked anew. */
    private static final double UNHEARD_SECONDS = 10.0;
    /** Java machines have no benchmark in common: a node is taken to be as fast as this machine until it has run. */
    private static final double SPEED = 1.0;

    private final Map<String, Node> nodes = new LinkedHashMap<>();
    private final Config config;
    private Engine engine = new Engine(Policy.DEFAULT);
    private boolean isConfigured;

    /** Nodes that these variables name, and those that are added. */
    public Nodes(Map<String, String> environment) {
        this.config = new Config(environment);
    }

    /** The engine; whoever uses it holds this object's lock. */
    public Engine engine() {
        return engine;
    }

    /** How places are chosen from now on; what was learnt is forgotten. */
    public synchronized void policy(Policy policy) {
        engine = new Engine(policy);
        for (Node node : nodes.values()) {
            know(node);
        }
    }

    /** Adds a node, or the one of this address anew, and asks it who it is. Throws what a request throws. */
    public Node connect(String url, String token) {
        Node node = new Node(config.address(url, token, false));
        node.ask();
        Node old;
        synchronized (this) {
            isConfigured = true;
            old = nodes.put(node.name, node);
            engine.forget(node.name);
            know(node);
        }
        if (old != null) {
            old.close();
        }
        return node;
    }

    /** Forgets all nodes; none is looked for. */
    public synchronized void disconnect() {
        isConfigured = true;
        for (Node node : nodes.values()) {
            engine.forget(node.name);
            node.close();
        }
        nodes.clear();
    }

    /** Every node that is known, whether it answers or not. */
    public synchronized List<Node> all() {
        if (!isConfigured) {
            // What is wrong with it is said by every call until it is right: a call that ran here would hide it.
            List<Address> found = config.found();
            isConfigured = true;
            for (Address address : found) {
                Node node = new Node(address);
                nodes.put(node.name, node);
                Background.chore(() -> look(node));
            }
        }
        return new ArrayList<>(nodes.values());
    }

    /** The nodes among `on` that answered when they were last asked; one not heard of for a while is asked again. */
    public List<Node> usable(Set<String> on, double now) {
        List<Node> usable = new ArrayList<>();
        for (Node node : all()) {
            if (node.isKnown() && node.isUnheard(now, UNHEARD_SECONDS)) {
                Background.chore(() -> look(node));
            }
            if (node.isKnown() && !node.isAway(now) && node.isAmong(on)) {
                usable.add(node);
            }
        }
        return usable;
    }

    /** The nodes that were asked for, asked now who they are if they have not said so yet. Throws NoNode. */
    public List<Node> chosen(Set<String> on) {
        List<Node> good = new ArrayList<>();
        LighterageException problem = null;
        for (Node node : all()) {
            if (!node.isAmong(on)) {
                continue;
            }
            try {
                if (!node.isKnown()) {
                    place(node);
                }
                good.add(node);
            } catch (LighterageException error) {
                problem = error;
            }
        }
        if (good.isEmpty() && problem != null) {
            throw problem;
        }
        if (good.isEmpty()) {
            throw new NoNode(on.isEmpty() ? "no node is known" : "no node " + on + " is known");
        }
        return good;
    }

    /** A node did not answer: it is left alone, then asked in the background. */
    public void failed(Node node, LighterageException error) {
        double pause = node.failed(error);
        if (node.beginsWatch()) {
            Background.after(pause, () -> Background.chore(() -> look(node)));
        }
    }

    private void look(Node node) {
        node.endWatch();
        synchronized (this) {
            if (nodes.get(node.name) != node) {
                return;
            }
        }
        try {
            place(node);
        } catch (LighterageException error) {
            failed(node, error);
        }
    }

    private void place(Node node) {
        node.ask();
        synchronized (this) {
            know(node);
        }
    }

    private void know(Node node) {
        double now = Clock.now();
        Place place = engine.place(node.name, SPEED, node.roundTrip(), node.bytesPerSecond());
        place.roundTrip().observe(node.roundTrip(), now);
        place.observeProbe(node.bytesPerSecond(), now);
    }
}

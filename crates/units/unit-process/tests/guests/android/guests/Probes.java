package guests;

import java.util.Map;
import java.util.TreeMap;

/** One use of each class of Android that is said to work, for what it is there for. `probe` takes the class's name. */
public final class Probes {
    private static final Map<String, Probe> ALL = new TreeMap<>();

    private Probes() {}

    /** Returns what it found; the test compares it with what stands beside it. */
    interface Probe {
        Object run() throws Exception;
    }

    static void add(Class<?> kind, Object wanted, Probe probe) {
        ALL.put(kind.getName(), () -> {
            Object found = probe.run();
            if (!String.valueOf(wanted).equals(String.valueOf(found))) {
                throw new AssertionError(kind.getName() + ": " + found + ", wanted " + wanted);
            }
            return found;
        });
    }

    static {
        GraphicsProbes.addAll();
        SystemProbes.addAll();
        UtilProbes.addAll();
    }

    /** `ok`, or what went wrong. */
    public static String probe(String name) throws Exception {
        Probe probe = ALL.get(name);
        if (probe == null) {
            return "there is no probe for " + name;
        }
        probe.run();
        return "ok";
    }

    /** How many there are. */
    public static String count() {
        return String.valueOf(ALL.size());
    }
}

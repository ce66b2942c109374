package lighterage.call;

import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashSet;
import java.util.Set;
import lighterage.code.Limits;

/** How a method is offloaded. Not changed once it is made. */
public final class Options {
    /** Milliseconds in which the result is wanted; 0: whenever it comes. */
    final long deadlineMs;
    /** Only these nodes, by name or address; all of them where it is empty. */
    final Set<String> on;
    /** Other nodes that are tried when one fails. */
    final int retries;
    /** Whether it may run here. */
    final boolean isLocal;
    /** What one call on a node may use, and whether a unit serves many. */
    final Limits limits;
    final boolean isReused;
    /** Here and nowhere else. */
    final boolean isHere;

    private Options(
            long deadlineMs,
            Set<String> on,
            int retries,
            boolean isLocal,
            Limits limits,
            boolean isReused,
            boolean isHere) {
        this.deadlineMs = deadlineMs;
        this.on = on;
        this.retries = retries;
        this.isLocal = isLocal;
        this.limits = limits;
        this.isReused = isReused;
        this.isHere = isHere;
    }

    /** As the annotation says; the processor writes this call. */
    public static Options of(long deadlineMs, int retries, boolean isLocal, Limits limits, boolean isReused) {
        return new Options(deadlineMs, Collections.emptySet(), retries, isLocal, limits, isReused, false);
    }

    /** On these nodes and nowhere else. */
    public Options on(String... nodes) {
        Set<String> on = new LinkedHashSet<>(Arrays.asList(nodes));
        return new Options(deadlineMs, on, retries, false, limits, isReused, false);
    }

    /** Here and nowhere else. */
    Options here() {
        return new Options(deadlineMs, Collections.emptySet(), retries, true, limits, isReused, true);
    }

    /** With the result wanted in so many milliseconds, more than 0. */
    public Options deadlineMs(long milliseconds) {
        if (milliseconds <= 0) {
            throw new IllegalArgumentException("a deadline of " + milliseconds + " ms is no time: write more than 0");
        }
        return new Options(milliseconds, on, retries, isLocal, limits, isReused, isHere);
    }

    /** Seconds; not a number where there is no deadline. */
    double deadline() {
        return deadlineMs == 0 ? Double.NaN : deadlineMs / 1e3;
    }
}

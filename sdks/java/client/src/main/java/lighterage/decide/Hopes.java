package lighterage.decide;

import java.util.LinkedHashMap;
import java.util.Map;

/** When a place that was slowed down is tried again, in the hope that what slowed it down is over. */
final class Hopes {
    /** Calls before it is tried again: at first, and after many tries in vain. */
    private static final int GAP = 8;
    private static final int GAP_MAX = 32;
    /** Calls before it is raced again: that costs next to no time. */
    private static final int RACED_GAP_MAX = 6;

    private static final class Hope {
        /** Since it was last tried. */
        private int calls;
        private int gap = GAP;
    }

    private final Map<String, Hope> hopes = new LinkedHashMap<>();

    /** From now on calls are counted since the place was tried. */
    void know(String place) {
        of(place);
    }

    /** Whether it is time to try the place again. */
    boolean isDue(String place) {
        Hope hope = of(place);
        return hope.calls >= hope.gap;
    }

    /** Whether it is time to race it again. */
    boolean isRaceDue(String place) {
        Hope hope = of(place);
        return hope.calls >= Math.min(hope.gap, RACED_GAP_MAX);
    }

    /** A call was decided. */
    void called() {
        for (Hope hope : hopes.values()) {
            hope.calls++;
        }
    }

    /** The place was tried, in vain or not. */
    void tried(String place, boolean isInVain) {
        Hope hope = of(place);
        hope.gap = isInVain ? Math.min(2 * hope.gap, GAP_MAX) : GAP;
        hope.calls = 0;
    }

    private Hope of(String place) {
        Hope found = hopes.get(place);
        if (found == null) {
            found = new Hope();
            hopes.put(place, found);
        }
        return found;
    }
}

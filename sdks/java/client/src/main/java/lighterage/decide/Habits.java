package lighterage.decide;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;

/** What was chosen for calls of each function and about each size, and how often each place was tried. */
final class Habits {
    /** Times that a place is tried at about one size, and calls of that size after which it is not known any more. */
    private static final int KNOWN_TRIES = 5;
    private static final int KNOWN_CALLS = 16;

    /** Of one function, at sizes within a factor of two. */
    static final class Habit {
        String place;
        private final Map<String, Integer> tries = new LinkedHashMap<>();
        /** Calls since it ran there. */
        private final Map<String, Integer> since = new LinkedHashMap<>();

        private Habit(String place) {
            this.place = place;
        }

        /** Whether there is nothing to learn of it now: what is left of its doubt is how much it varies. */
        boolean isKnown(String name) {
            return orZero(tries.get(name)) >= KNOWN_TRIES && orZero(since.get(name)) < KNOWN_CALLS;
        }

        /** Calls since it ran there. */
        int untried(String name) {
            Integer calls = since.get(name);
            int all = 0;
            for (int count : tries.values()) {
                all += count;
            }
            return calls == null ? all : calls;
        }

        void ran(String name) {
            for (Map.Entry<String, Integer> entry : since.entrySet()) {
                entry.setValue(entry.getValue() + 1);
            }
            tries.put(name, orZero(tries.get(name)) + 1);
            since.put(name, 0);
        }
    }

    /** By function, then by the power of two that the size is near. */
    private final Map<String, Map<Long, Habit>> habits = new HashMap<>();
    /** Calls by function and place, of any size. */
    private final Map<String, Map<String, Integer>> tries = new HashMap<>();

    /** The habit of this size, begun with `place`. */
    Habit of(String function, double size, String place) {
        Map<Long, Habit> own = habits.get(function);
        if (own == null) {
            own = new HashMap<>();
            habits.put(function, own);
        }
        Long key = (long) Math.rint(Math.log(Math.max(size, 1.0)) / Math.log(2));
        Habit found = own.get(key);
        if (found == null) {
            found = new Habit(place);
            own.put(key, found);
        }
        return found;
    }

    int tries(String function, String place) {
        Map<String, Integer> own = tries.get(function);
        return own == null ? 0 : orZero(own.get(place));
    }

    void tried(String function, String place) {
        Map<String, Integer> own = tries.get(function);
        if (own == null) {
            own = new HashMap<>();
            tries.put(function, own);
        }
        own.put(place, orZero(own.get(place)) + 1);
    }

    /** Forgets a function. */
    void forget(String function) {
        habits.remove(function);
        tries.remove(function);
    }

    private static int orZero(Integer count) {
        return count == null ? 0 : count;
    }
}

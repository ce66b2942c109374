package workloads;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;

/**
 * Finds all of many byte strings in one pass over a file (Aho and Corasick, 1975).
 *
 * <pre>
 * strings ─▶ a tree of their bytes ─▶ where to go on after each byte, in a table ─▶ one look-up a byte
 * </pre>
 */
final class AhoCorasick {
    private static final int BYTES = 256;
    private static final int NONE = -1;
    /** States of the table, each of a kilobyte. */
    private static final int STATES_MAX = 200_000;

    /** What is told of each string that is found. */
    interface Found {
        /** String number `pattern` ends before `end`. */
        void at(int pattern, int end);
    }

    private int[] next = new int[BYTES];
    private final List<int[]> ends = new ArrayList<>();
    /** The nearest state of a shorter string that ends here too. */
    private int[] shorter;

    AhoCorasick(List<byte[]> patterns) {
        Arrays.fill(next, NONE);
        ends.add(new int[0]);
        for (int pattern = 0; pattern < patterns.size(); pattern++) {
            add(patterns.get(pattern), pattern);
        }
        link();
    }

    private void add(byte[] pattern, int number) {
        if (pattern.length == 0) {
            throw new IllegalArgumentException("pattern " + number + " is empty");
        }
        int state = 0;
        for (byte one : pattern) {
            int place = state * BYTES + (one & 0xFF);
            if (next[place] == NONE) {
                // The table may have to grow for it.
                int fresh = state();
                next[place] = fresh;
            }
            state = next[place];
        }
        int[] before = ends.get(state);
        int[] with = Arrays.copyOf(before, before.length + 1);
        with[before.length] = number;
        ends.set(state, with);
    }

    private int state() {
        int state = ends.size();
        if (state >= STATES_MAX) {
            throw new IllegalArgumentException("the patterns need more than " + STATES_MAX + " states");
        }
        if ((state + 1) * BYTES > next.length) {
            int before = next.length;
            next = Arrays.copyOf(next, Math.min(2 * before, STATES_MAX * BYTES));
            Arrays.fill(next, before, next.length, NONE);
        }
        ends.add(new int[0]);
        return state;
    }

    /** Breadth first: where a byte leads nowhere, it leads where it does from the longest suffix that is a state. */
    private void link() {
        int[] suffix = new int[ends.size()];
        shorter = new int[ends.size()];
        Deque<Integer> left = new ArrayDeque<>();
        for (int one = 0; one < BYTES; one++) {
            if (next[one] == NONE) {
                next[one] = 0;
            } else {
                left.add(next[one]);
            }
        }
        while (!left.isEmpty()) {
            int state = left.remove();
            int back = suffix[state];
            shorter[state] = ends.get(back).length > 0 ? back : shorter[back];
            for (int one = 0; one < BYTES; one++) {
                int place = state * BYTES + one;
                int there = next[back * BYTES + one];
                if (next[place] == NONE) {
                    next[place] = there;
                } else {
                    suffix[next[place]] = there;
                    left.add(next[place]);
                }
            }
        }
    }

    /** Tells all that is found, in the order of the ends. */
    void scan(byte[] bytes, Found found) {
        int state = 0;
        for (int at = 0; at < bytes.length; at++) {
            state = next[state * BYTES + (bytes[at] & 0xFF)];
            for (int end = state; end != 0; end = shorter[end]) {
                for (int pattern : ends.get(end)) {
                    found.at(pattern, at + 1);
                }
            }
        }
    }
}

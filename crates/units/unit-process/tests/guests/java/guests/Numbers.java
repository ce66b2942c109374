package guests;

import java.util.List;
import java.util.Map;

/** Methods that know nothing of events: their arguments come as JSON. */
public final class Numbers {
    record Point(double x, double y) {}

    private long total;

    static double distance(Point from, Point to) {
        return Math.hypot(from.x() - to.x(), from.y() - to.y());
    }

    static Map<String, Object> describe(List<Point> points, String name) {
        return Map.of("name", name + " " + points.get(0).x());
    }

    static int[] sorted(int... numbers) {
        int[] sorted = numbers.clone();
        java.util.Arrays.sort(sorted);
        return sorted;
    }

    long add(long more) {
        total += more;
        return total;
    }

    static Object fails(int why) {
        throw new IllegalArgumentException("it says " + why, new IllegalStateException("first"));
    }
}

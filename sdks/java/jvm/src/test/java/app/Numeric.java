package app;

import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import lighterage.Offload;

/** Methods of every kind of value. */
final class Numeric {
    enum Colour {
        RED,
        GREEN
    }

    static final class Point {
        double x;
        double y;
        List<Colour> colours;
    }

    static final class TooMuch extends Exception {
        private static final long serialVersionUID = 1;

        public TooMuch(String message) {
            super(message);
        }
    }

    private Numeric() {}

    @Offload
    static double[] scaled(double[] numbers, double factor) {
        double[] result = new double[numbers.length];
        for (int at = 0; at < result.length; at++) {
            result[at] = numbers[at] * factor;
        }
        return result;
    }

    @Offload(timeMs = 20_000)
    static String kinds(boolean truth, char letter, byte small, short number, Integer boxed, long large, float single) {
        return truth + " " + letter + " " + small + " " + number + " " + boxed + " " + large + " " + single;
    }

    @Offload
    static Map<String, List<Point>> mirrored(List<Point> points, Map<String, Integer> times) {
        Map<String, List<Point>> mirrored = new LinkedHashMap<>();
        for (Map.Entry<String, Integer> entry : times.entrySet()) {
            List<Point> list = new ArrayList<>();
            for (Point point : points) {
                Point other = new Point();
                other.x = -point.x * entry.getValue();
                other.y = point.y;
                other.colours = point.colours;
                list.add(other);
            }
            mirrored.put(entry.getKey(), list);
        }
        return mirrored;
    }

    @Offload
    static byte[] reversed(byte[] bytes, int[] ints, float[] floats, long[] longs) {
        byte[] result = new byte[bytes.length];
        for (int at = 0; at < bytes.length; at++) {
            result[at] = bytes[bytes.length - 1 - at];
        }
        result[0] += (byte) (ints[0] + floats[0] + longs[0]);
        return result;
    }

    @Offload
    static int failing(int how) throws TooMuch, IOException {
        switch (how) {
            case 0:
                throw new TooMuch("it is too much");
            case 1:
                throw new IllegalStateException("odd", new IOException("inner"));
            case 2:
                return new int[] {1}[how];
            default:
                throw new Hidden();
        }
    }

    @Offload(timeMs = 60_000, retries = 0)
    static long slow(long milliseconds) throws InterruptedException {
        Thread.sleep(milliseconds);
        return milliseconds;
    }

    @Offload(reuse = true)
    static int counted() {
        return ++count;
    }

    private static int count;

    @Offload
    static void nothing() {}

    private static final class Hidden extends RuntimeException {
        private static final long serialVersionUID = 1;
    }
}

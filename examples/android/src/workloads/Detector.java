package workloads;

import java.util.ArrayList;
import java.util.List;

/** Moves a cascade's window over a picture at every size, and joins the windows that agree. */
final class Detector {
    /** How much smaller each picture is than the one before. */
    private static final double SCALE = 1.1;
    /** Windows that must agree on a face. */
    private static final int NEIGHBOURS_MIN = 3;
    /** How far two windows may be apart, as a part of their size. */
    private static final double APART = 0.2;

    private final Cascade cascade;

    Detector(Cascade cascade) {
        this.cascade = cascade;
    }

    /** Faces as `{left, top, width, height}`, the one that most windows agree on first. */
    List<int[]> find(int[] gray, int width, int height) {
        List<int[]> windows = new ArrayList<>();
        for (double scale = 1; ; scale *= SCALE) {
            int w = (int) Math.round(width / scale);
            int h = (int) Math.round(height / scale);
            if (w < cascade.width || h < cascade.height) {
                return joined(windows);
            }
            Integral image = new Integral(scaled(gray, width, w, h, scale), w, h);
            int step = scale > 2 ? 1 : 2;
            for (int top = 0; top <= h - cascade.height; top += step) {
                for (int left = 0; left <= w - cascade.width; left += step) {
                    if (cascade.accepts(image, left, top)) {
                        int x = (int) Math.round(left * scale);
                        int y = (int) Math.round(top * scale);
                        int side = (int) Math.round(cascade.width * scale);
                        windows.add(new int[] {x, y, side, (int) Math.round(cascade.height * scale)});
                    }
                }
            }
        }
    }

    /** The picture at another size: each pixel is the mean of those that it covers. */
    private static int[] scaled(int[] gray, int width, int w, int h, double scale) {
        if (scale == 1) {
            return gray;
        }
        int height = gray.length / width;
        int[] out = new int[w * h];
        for (int y = 0; y < h; y++) {
            int top = (int) (y * scale);
            int bottom = Math.max(top + 1, Math.min(height, (int) ((y + 1) * scale)));
            for (int x = 0; x < w; x++) {
                int left = (int) (x * scale);
                int right = Math.max(left + 1, Math.min(width, (int) ((x + 1) * scale)));
                int sum = 0;
                for (int row = top; row < bottom; row++) {
                    for (int column = left; column < right; column++) {
                        sum += gray[row * width + column];
                    }
                }
                out[y * w + x] = sum / ((bottom - top) * (right - left));
            }
        }
        return out;
    }

    /** Windows that agree become their mean, also by way of others; those that are alone are chance. */
    private static List<int[]> joined(List<int[]> windows) {
        List<List<int[]>> groups = new ArrayList<>();
        for (int[] window : windows) {
            List<int[]> own = new ArrayList<>();
            own.add(window);
            for (int at = groups.size() - 1; at >= 0; at--) {
                if (agrees(groups.get(at), window)) {
                    own.addAll(groups.remove(at));
                }
            }
            groups.add(own);
        }
        groups.sort((one, other) -> other.size() - one.size());
        List<int[]> faces = new ArrayList<>();
        for (List<int[]> group : groups) {
            int[] face = mean(group);
            if (group.size() >= NEIGHBOURS_MIN && !overlaps(faces, face)) {
                faces.add(face);
            }
        }
        return faces;
    }

    private static boolean agrees(List<int[]> group, int[] window) {
        for (int[] other : group) {
            if (isNear(other, window)) {
                return true;
            }
        }
        return false;
    }

    private static int[] mean(List<int[]> group) {
        int[] mean = new int[4];
        for (int part = 0; part < 4; part++) {
            int sum = 0;
            for (int[] window : group) {
                sum += window[part];
            }
            mean[part] = sum / group.size();
        }
        return mean;
    }

    /** Whether its middle is in a face that more windows agree on. */
    private static boolean overlaps(List<int[]> faces, int[] face) {
        int x = face[0] + face[2] / 2;
        int y = face[1] + face[3] / 2;
        for (int[] other : faces) {
            if (x >= other[0] && x < other[0] + other[2] && y >= other[1] && y < other[1] + other[3]) {
                return true;
            }
        }
        return false;
    }

    private static boolean isNear(int[] one, int[] other) {
        double far = APART * Math.min(one[2], other[2]);
        boolean isSameCorner = Math.abs(one[0] - other[0]) <= far && Math.abs(one[1] - other[1]) <= far;
        boolean isSameEnd = Math.abs(one[0] + one[2] - other[0] - other[2]) <= far
                && Math.abs(one[1] + one[3] - other[1] - other[3]) <= far;
        return isSameCorner && isSameEnd;
    }
}

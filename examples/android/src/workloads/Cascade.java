package workloads;

import java.util.ArrayList;
import java.util.List;

/**
 * A cascade of local binary patterns, as OpenCV's training writes it: stages of small tests, the cheapest first.
 *
 * <p>A window is a face if it passes all stages. A test compares the brightness of eight blocks around a ninth, and
 * looks the pattern up in a set. (Viola and Jones, 2001; Liao et al., 2007.)
 */
final class Cascade {
    /** Words of a set of 256 patterns. */
    private static final int WORDS = 8;
    /** OpenCV subtracts it from each threshold. */
    private static final float THRESHOLD_EPSILON = 1e-5f;

    /** One test. */
    private static final class Weak {
        private int[] block;
        private final int[] set = new int[WORDS];
        private float inside;
        private float outside;
    }

    /** Tests whose sum has to reach a threshold. */
    private static final class Stage {
        private float threshold;
        private final List<Weak> tests = new ArrayList<>();
    }

    /** Of the window, in pixels. */
    final int width;
    final int height;
    private final List<Stage> stages = new ArrayList<>();

    /** Reads OpenCV's file. Throws IllegalArgumentException where it is another one. */
    Cascade(String xml) {
        if (!text(xml, "featureType", 0).equals("LBP")) {
            throw new IllegalArgumentException("a cascade of other features than LBP");
        }
        width = Integer.parseInt(text(xml, "width", 0));
        height = Integer.parseInt(text(xml, "height", 0));
        int features = xml.indexOf("<features>");
        List<int[]> blocks = new ArrayList<>();
        for (int at = xml.indexOf("<rect>", features); at >= 0; at = xml.indexOf("<rect>", at + 1)) {
            String[] numbers = text(xml, "rect", at).split("\\s+");
            int[] block = new int[4];
            for (int part = 0; part < 4; part++) {
                block[part] = Integer.parseInt(numbers[part]);
            }
            blocks.add(block);
        }
        int begin = xml.indexOf("<stages>");
        for (int at = xml.indexOf("<stageThreshold>", begin); at >= 0 && at < features; ) {
            int next = xml.indexOf("<stageThreshold>", at + 1);
            stages.add(stage(xml, at, next < 0 ? features : next, blocks));
            at = next;
        }
        if (stages.isEmpty() || blocks.isEmpty()) {
            throw new IllegalArgumentException("a cascade without stages");
        }
    }

    private static Stage stage(String xml, int begin, int end, List<int[]> blocks) {
        Stage stage = new Stage();
        stage.threshold = Float.parseFloat(text(xml, "stageThreshold", begin)) - THRESHOLD_EPSILON;
        int at = xml.indexOf("<internalNodes>", begin);
        for (; at >= 0 && at < end; at = xml.indexOf("<internalNodes>", at + 1)) {
            Weak weak = new Weak();
            String[] nodes = text(xml, "internalNodes", at).split("\\s+");
            weak.block = blocks.get(Integer.parseInt(nodes[2]));
            for (int word = 0; word < WORDS; word++) {
                weak.set[word] = Integer.parseInt(nodes[3 + word]);
            }
            String[] leaves = text(xml, "leafValues", at).split("\\s+");
            weak.inside = Float.parseFloat(leaves[0]);
            weak.outside = Float.parseFloat(leaves[1]);
            stage.tests.add(weak);
        }
        return stage;
    }

    private static String text(String xml, String tag, int from) {
        int begin = xml.indexOf("<" + tag + ">", from);
        int end = xml.indexOf("</" + tag + ">", begin);
        if (begin < 0 || end < 0) {
            throw new IllegalArgumentException("a cascade without " + tag);
        }
        return xml.substring(begin + tag.length() + 2, end).trim();
    }

    /** Whether the window with this corner is a face. */
    boolean accepts(Integral image, int left, int top) {
        for (Stage stage : stages) {
            float sum = 0;
            for (Weak weak : stage.tests) {
                int pattern = pattern(image, weak.block, left, top);
                sum += (weak.set[pattern >> 5] & 1 << (pattern & 31)) != 0 ? weak.inside : weak.outside;
            }
            if (sum < stage.threshold) {
                return false;
            }
        }
        return true;
    }

    /** Which of the eight blocks around the middle one are as bright or brighter: from the corner, clockwise. */
    private static int pattern(Integral image, int[] block, int left, int top) {
        int x = left + block[0];
        int y = top + block[1];
        int w = block[2];
        int h = block[3];
        int middle = image.sum(x + w, y + h, w, h);
        int pattern = image.sum(x, y, w, h) >= middle ? 128 : 0;
        pattern |= image.sum(x + w, y, w, h) >= middle ? 64 : 0;
        pattern |= image.sum(x + 2 * w, y, w, h) >= middle ? 32 : 0;
        pattern |= image.sum(x + 2 * w, y + h, w, h) >= middle ? 16 : 0;
        pattern |= image.sum(x + 2 * w, y + 2 * h, w, h) >= middle ? 8 : 0;
        pattern |= image.sum(x + w, y + 2 * h, w, h) >= middle ? 4 : 0;
        pattern |= image.sum(x, y + 2 * h, w, h) >= middle ? 2 : 0;
        return pattern | (image.sum(x, y + h, w, h) >= middle ? 1 : 0);
    }
}

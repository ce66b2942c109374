package lighterage.call;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import lighterage.decide.Question;
import lighterage.places.Cancel;
import lighterage.places.Node;
import lighterage.places.Nodes;

/** One call of a method, and what it is taken to weigh. */
final class Call {
    /** Seconds that putting a method on a node is taken to last, before it has been done. */
    private static final double PREPARE_SECONDS = 0.5;
    /** Seconds that transfers may add to the limit on a call's time, and bytes a second at the least. */
    private static final double SLACK_SECONDS = 10.0;
    private static final double SLOWEST_BYTES_PER_SECOND = 20_000.0;

    final Function function;
    final Options options;
    final Object[] arguments;
    final Nodes nodes;
    final Cancel cancel;
    final double size;
    final double bytes;

    Call(Function function, Options options, Object[] arguments, Nodes nodes, Cancel cancel) {
        this.function = function;
        this.options = options;
        this.arguments = arguments;
        this.nodes = nodes;
        this.cancel = cancel;
        Measure measure = Measure.of(arguments);
        this.size = measure.size;
        this.bytes = measure.bytes;
    }

    /** Seconds that a node may have for it. */
    double timeLimit() {
        return options.limits.timeMs / 1e3 + SLACK_SECONDS + bytes / SLOWEST_BYTES_PER_SECOND;
    }

    /** The question where it should run, of here and those of these nodes that take it. */
    Question question(List<Node> usable, double now) {
        List<String> open = new ArrayList<>();
        Map<String, Double> waits = new LinkedHashMap<>();
        // Whoever names nodes asks them anyhow.
        boolean isResting = options.isLocal && function.vain.isResting(now);
        for (Node node : usable) {
            boolean isPaused = options.isLocal && function.isPaused(node, now);
            if (!isResting && !isPaused && function.mayRunOn(node) && bytes <= options.limits.bodyBytes) {
                open.add(node.name);
                if (!function.isReady(node)) {
                    // What has taken longer than that may take as long again.
                    waits.put(node.name, Math.max(PREPARE_SECONDS, function.awaited(node, now)));
                }
            }
        }
        Question question = new Question(function.name(), size, bytes, open, now);
        question.deadline = options.deadline();
        question.mayRunHere = options.isLocal || open.isEmpty();
        question.waits = waits;
        return question;
    }
}

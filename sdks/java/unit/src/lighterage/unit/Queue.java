package lighterage.unit;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import lighterage.frame.FrameException;

/** Durable queues. {@link #push} needs the grant `push`, {@link #pop} the grant `pop`. */
public final class Queue {
    private Queue() {}

    public static void push(String queue, Outgoing event) {
        Link.current().ask("queue.push", queue, event.fields());
    }

    public static void push(String queue, String data) {
        push(queue, new Outgoing(data));
    }

    /** Pushes events in this order. */
    public static void pushAll(String queue, List<Outgoing> events) {
        List<Map<String, Object>> all = new ArrayList<>();
        for (Outgoing event : events) {
            all.add(event.fields());
        }
        Link.current().ask("queue.push-all", queue, all);
    }

    /** Takes the oldest event that is ready; null if there is none. */
    public static Event pop(String queue) {
        Object record = Link.current().ask("queue.pop", queue);
        try {
            return record == null ? null : Event.of(record);
        } catch (FrameException wrong) {
            throw new Unavailable("the host's answer is no event");
        }
    }
}

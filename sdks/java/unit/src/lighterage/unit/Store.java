package lighterage.unit;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import lighterage.frame.FrameException;

/** Durable key-value buckets. Needs the grant `stores`. */
public final class Store {
    private Store() {}

    /** Entries of a bucket in byte order of their keys; `next` is passed as `after` to read on, and null at the end. */
    public record Page(List<Entry> entries, String next) {}

    public record Entry(String key, byte[] value) {}

    /** The value; null if there is none. */
    public static byte[] get(String bucket, String key) {
        return Link.expect(byte[].class, Link.current().ask("store.get", bucket, key));
    }

    public static void set(String bucket, String key, byte[] value) {
        Link.current().ask("store.set", bucket, key, Link.carried(value));
    }

    public static void set(String bucket, String key, String value) {
        set(bucket, key, value.getBytes(StandardCharsets.UTF_8));
    }

    /** The value is gone after so many milliseconds. */
    public static void set(String bucket, String key, byte[] value, long ttlMs) {
        Link.current().ask("store.set-with-ttl", bucket, key, Link.carried(value), ttlMs);
    }

    public static void delete(String bucket, String key) {
        Link.current().ask("store.delete", bucket, key);
    }

    /** Adds to a number, 0 where there is none; the sum. */
    public static long increment(String bucket, String key, long delta) {
        return Link.expect(Long.class, Link.current().ask("store.increment", bucket, key, delta));
    }

    /** Writes `value` if the value is `expected`; null stands for none, both ways. Whether it did. */
    public static boolean compareAndSet(String bucket, String key, byte[] expected, byte[] value) {
        return Link.expect(Boolean.class, Link.current().ask("store.compare-and-set", bucket, key, expected, value));
    }

    /** Keys that begin with `prefix`, from behind `after`, which may be null. */
    public static Page list(String bucket, String prefix, String after, int limit) {
        Map<?, ?> page = Link.expect(Map.class, Link.current().ask("store.list", bucket, prefix, after, limit));
        List<Entry> entries = new ArrayList<>();
        try {
            for (Object entry : Link.list(page.get("entries"))) {
                List<?> pair = Link.list(entry);
                entries.add(new Entry(Event.text(pair.get(0)), Event.bytes(pair.get(1))));
            }
        } catch (FrameException wrong) {
            throw new Unavailable("the host's answer is no page of a bucket");
        }
        return new Page(entries, Link.expect(String.class, page.get("next")));
    }
}

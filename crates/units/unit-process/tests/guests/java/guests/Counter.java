package guests;

import lighterage.unit.Denied;
import lighterage.unit.Event;
import lighterage.unit.Fatal;
import lighterage.unit.Invalid;
import lighterage.unit.Malformed;
import lighterage.unit.Retry;
import lighterage.unit.Store;
import lighterage.unit.Unavailable;

/** Counts its calls in the store: the bucket is `counters`, the key is the data, or `calls` if there is none. */
public final class Counter {
    public static String handle(Event event) {
        try {
            return Store.increment("counters", event.text().isEmpty() ? "calls" : event.text(), 1) + "\n";
        } catch (Denied error) {
            throw new Fatal(error.getMessage());
        } catch (Malformed error) {
            throw new Invalid(error.getMessage());
        } catch (Unavailable error) {
            throw new Retry(error.getMessage());
        }
    }
}

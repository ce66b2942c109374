package lighterage.decide;

import java.util.Collections;
import java.util.List;
import java.util.Map;

/** What is known of a call before it is decided where it runs. */
public final class Question {
    /** Its name. */
    public final String function;
    /** What the function's work grows with, and the bytes that its arguments take on the wire. */
    public final double size;
    public final double bytesUp;
    /** Where it may run, beside here. */
    public final List<String> places;
    /** Seconds of a clock that never goes back. */
    public final double now;
    /** Seconds from now; not a number where there is none. */
    public double deadline = Double.NaN;
    /** Whether it may run here. */
    public boolean mayRunHere = true;
    /** Seconds that a place needs before, by its name. */
    public Map<String, Double> waits = Collections.emptyMap();
    /** Whether it may run at two places at once. */
    public boolean mayRace;
    /** Whether something still runs here that an earlier call has left. */
    public boolean isDisturbed;

    /** A call that may run here and at these places, without a deadline. */
    public Question(String function, double size, double bytesUp, List<String> places, double now) {
        this.function = function;
        this.size = size;
        this.bytesUp = bytesUp;
        this.places = places;
        this.now = now;
    }

    double waits(String place) {
        Double found = waits.get(place);
        return found == null ? 0.0 : found;
    }
}

package lighterage.decide;

import java.util.List;

/** Where a call runs, and why. */
public final class Decision {
    /** {@link Prediction#LOCAL}, or the node's name. */
    public final String place;
    /** Why. */
    public final Choice choice;
    /** What it would take here, and at each place that was asked about. */
    public final List<Prediction> predictions;
    /** The place that runs the call as well; null where it runs once. */
    public final String rival;
    /** Seconds after which the rival begins. */
    public final double rivalAfter;
    /** What knowing the better place would have saved, as a part of the call's time. */
    public final double doubt;

    Decision(String place, Choice choice, List<Prediction> predictions) {
        this(place, choice, predictions, null, 0.0, 0.0);
    }

    Decision(
            String place, Choice choice, List<Prediction> predictions, String rival, double rivalAfter, double doubt) {
        this.place = place;
        this.choice = choice;
        this.predictions = predictions;
        this.rival = rival;
        this.rivalAfter = rivalAfter;
        this.doubt = doubt;
    }

    /** What it is expected to take at the place that was chosen. */
    public Prediction chosen() {
        return at(place);
    }

    /** What it is expected to take at this place; null where it was not asked about. */
    public Prediction at(String name) {
        for (Prediction prediction : predictions) {
            if (prediction.place.equals(name)) {
                return prediction;
            }
        }
        return null;
    }
}

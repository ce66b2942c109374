package lighterage.decide;

/** What this machine draws while it computes, sends and waits. */
public final class Energy {
    /** Five watts computing, 1.5 sending, half a watt waiting; they have no weight: only time counts. */
    public static final Energy DEFAULT = new Energy(5.0, 1.5, 0.5, 0.0);

    final double computeWatts;
    final double radioWatts;
    final double waitWatts;
    final double secondsPerJoule;

    /** Watts while it computes, sends or receives, and waits; and the seconds that a joule is worth, 0 or more. */
    public Energy(double computeWatts, double radioWatts, double waitWatts, double secondsPerJoule) {
        this.computeWatts = computeWatts;
        this.radioWatts = radioWatts;
        this.waitWatts = waitWatts;
        this.secondsPerJoule = secondsPerJoule;
    }
}

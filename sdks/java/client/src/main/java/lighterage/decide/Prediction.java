package lighterage.decide;

import java.util.ArrayList;
import java.util.List;

/** What a call is expected to take at a place: the sum of its stages, taken as independent. */
public final class Prediction {
    /** The name of this machine. */
    public static final String LOCAL = "local";

    private static final String[] LOCAL_NAMES = {"run"};
    private static final String[] REMOTE_NAMES = {"encode", "up", "round trip", "queue", "run", "down", "decode"};
    private static final double SIGMAS_95 = 1.645;

    /** {@link #LOCAL}, or the node's name. */
    public final String place;
    /** The expected time, and its standard deviation. */
    public final double seconds;
    public final double spread;
    /** What of the spread would be gone if the place were known well. */
    public final double doubt;
    /** One call in twenty takes longer. */
    public final double p95;
    /** What this machine draws meanwhile. */
    public final double joules;
    /** Seconds that are known beforehand: until the function is there. */
    public final double wait;
    /** Seconds that it takes if what slowed the place down is over. */
    final double bestCase;
    /** Seconds that it takes if it begins here once it is late, and that keeps its answer waiting. */
    double hedged;

    private final String[] names;
    private final Guess[] stages;

    private Prediction(String place, Guess[] stages, Energy energy, double wait, double late, double bestCase) {
        boolean isLocal = stages.length == 1;
        double[] watts = isLocal ? new double[] {energy.computeWatts} : remoteWatts(energy);
        double total = 0.0;
        double square = 0.0;
        double chance = 0.0;
        double drawn = 0.0;
        for (int index = 0; index < stages.length; index++) {
            Guess stage = stages[index];
            double variance = Math.min(stage.variance, Guess.SPREAD_MAX);
            double mean = stage.mean();
            total += mean;
            square += mean * mean * Math.expm1(variance);
            chance += mean * mean * Math.expm1(Math.min(stage.noise, variance));
            drawn += mean * watts[index];
        }
        this.place = place;
        this.names = isLocal ? LOCAL_NAMES : REMOTE_NAMES;
        this.stages = stages;
        this.seconds = total * late + wait;
        this.spread = Math.sqrt(square) * late;
        this.doubt = Math.sqrt(Math.max(square - chance, 0.0)) * late;
        this.p95 = seconds + SIGMAS_95 * spread;
        this.joules = drawn;
        this.wait = wait;
        this.bestCase = Double.isNaN(bestCase) ? seconds : (seconds - wait) / late + bestCase + wait;
        this.hedged = seconds;
    }

    /** Here; `late` is what the whole is multiplied by. */
    static Prediction local(Guess run, Energy energy, double late) {
        return new Prediction(LOCAL, new Guess[] {run}, energy, 0.0, late, Double.NaN);
    }

    /** On a node, after `wait` seconds; `better` is added where what slowed it down is over, in seconds. */
    static Prediction remote(String name, Guess[] stages, Energy energy, double wait, double late, double better) {
        return new Prediction(name, stages, energy, wait, late, better);
    }

    private static double[] remoteWatts(Energy energy) {
        double compute = energy.computeWatts;
        double radio = energy.radioWatts;
        double wait = energy.waitWatts;
        return new double[] {compute, radio, wait, wait, wait, radio, compute};
    }

    /** Of the log-normal with this mean and spread. */
    double logVariance() {
        return logVariance(spread, seconds);
    }

    /** As likely too long as too short. */
    double middle() {
        return seconds * Math.exp(-logVariance() / 2);
    }

    static double logVariance(double spread, double seconds) {
        double ratio = spread / Math.max(seconds, 1e-9);
        return Math.log1p(ratio * ratio);
    }

    /**
     * What it may turn out to take once it is known better: so many deviations of its doubt below its middle.
     *
     * <p>How much it varies from call to call is not counted: that stays, however often it is tried.
     */
    double hoped(double sigmas) {
        double variance = logVariance(doubt, seconds);
        return seconds * Math.exp(-variance / 2 - sigmas * Math.sqrt(variance));
    }

    /** The expected seconds of one stage. */
    public double stage(String name) {
        for (int index = 0; index < names.length; index++) {
            if (names[index].equals(name)) {
                return stages[index].mean();
            }
        }
        throw new IllegalArgumentException("there is no stage " + name);
    }

    /** The stages one by one. */
    public List<Term> terms() {
        List<Term> terms = new ArrayList<>();
        for (int index = 0; index < names.length; index++) {
            terms.add(new Term(names[index], stages[index]));
        }
        return terms;
    }
}

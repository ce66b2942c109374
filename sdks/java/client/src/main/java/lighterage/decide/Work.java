package lighterage.decide;

import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/** What is known of one function. */
final class Work {
    /** Before anything is known of it: a nanosecond of work for each byte, give or take a factor of twenty. */
    private static final double SECONDS_PER_BYTE = 1e-9;
    private static final double VARIANCE = 9.0;
    /** Benchmarks say a place's speed on one kind of work only. */
    private static final double SPEED_VARIANCE = 0.12;
    /** A curve this sure of a size needs no other's help; and how alike curves of two places are. */
    private static final double SURE_VARIANCE = 0.02;
    private static final double SHAPE_VARIANCE = 0.01;

    final Curve local = Curve.work(0.0, VARIANCE);
    final Map<String, Curve> remote = new LinkedHashMap<>();
    /** How many times as fast as this machine the places of `remote` are said to be. */
    private final Map<String, Double> speeds = new LinkedHashMap<>();
    final Curve encode = Curve.at(Math.log(5e-5), 0.3, 1.0, 0.1);
    final Curve decode = Curve.at(Math.log(5e-5), 0.3, 1.0, 0.1);
    /** Bytes on the wire by those that were estimated; of the result by the size, on the wire and as estimated here. */
    final Curve bytesUp = Curve.open(1.0, 0.01, 0.01);
    final Curve bytesDown = Curve.open(1.0, 0.1, 0.1);
    final Curve result = Curve.open(1.0, 0.1, 0.1);

    /** How likely a call here cannot be stopped in the middle. */
    double runsOut = 0.5;
    /** Whether it ever ran here to its end; if not, calls since that was last tried, and before it is tried again. */
    boolean hasRunHere;
    int calls;
    int gap = 4;
    /** Whether nothing else of this program runs while it does here; null until it was seen. */
    Boolean holds;
    int held;

    boolean alwaysHolds() {
        return Boolean.TRUE.equals(holds);
    }

    boolean neverHolds() {
        return Boolean.FALSE.equals(holds);
    }

    Guess runHere(double size) {
        if (local.count() > 0) {
            return shared(local, remote.values(), size);
        }
        for (Map.Entry<String, Curve> entry : remote.entrySet()) {
            if (entry.getValue().count() > 0) {
                // Seen elsewhere only: the same shape, this machine's speed.
                Guess guess = entry.getValue().guess(size);
                Double speed = speeds.get(entry.getKey());
                return new Guess(guess.log + Math.log(speed == null ? 1.0 : speed), guess.variance + SPEED_VARIANCE);
            }
        }
        return new Guess(Math.log(SECONDS_PER_BYTE * Math.max(size, 1.0)), VARIANCE);
    }

    Guess runThere(String name, Place place, double size, double now) {
        Guess slowed = place.slowed(now);
        Curve curve = remote.get(name);
        if (curve != null && curve.count() > 0) {
            Guess guess = shared(curve, Collections.singletonList(local), size);
            return new Guess(guess.log + slowed.log, guess.variance + slowed.variance, guess.noise + slowed.noise);
        }
        Guess here = runHere(size);
        double log = here.log - Math.log(place.speed) + slowed.log;
        return new Guess(log, here.variance + SPEED_VARIANCE + slowed.variance, here.noise + slowed.noise);
    }

    /** What the result takes on the wire: as answers did, else as what it was here, else as the arguments. */
    private Guess bytesBack(double size, double bytesUp) {
        if (bytesDown.count() > 0) {
            return bytesDown.guess(size);
        }
        return result.count() > 0 ? result.guess(size) : new Guess(Math.log(Math.max(bytesUp, 1.0)), 0.0);
    }

    /** The logarithm of the run time there when nothing slows it down. */
    private double runUsually(String name, double size) {
        Curve curve = remote.get(name);
        return curve != null && curve.count() > 0 ? curve.guess(size).log : Double.POSITIVE_INFINITY;
    }

    Curve curveOf(String name, Place place, double size) {
        Curve curve = remote.get(name);
        if (curve == null) {
            Guess here = runHere(size);
            curve = Curve.work(here.log - Math.log(place.speed), Math.min(here.variance + SPEED_VARIANCE, VARIANCE));
            remote.put(name, curve);
        }
        speeds.put(name, place.speed);
        return curve;
    }

    /** Whether it was never seen to run anywhere. */
    boolean isNew() {
        if (local.count() > 0) {
            return false;
        }
        for (Curve curve : remote.values()) {
            if (curve.count() > 0) {
                return false;
            }
        }
        return true;
    }

    /** What a call takes here. */
    Prediction predictLocal(double size, Energy energy, double late) {
        return Prediction.local(runHere(size), energy, late);
    }

    /** What a call takes at a place. */
    Prediction predictRemote(String name, Place place, Question question, Energy energy) {
        double size = question.size;
        double now = question.now;
        boolean isKnown = bytesUp.count() > 0;
        double upLog = isKnown ? bytesUp.guess(question.bytesUp).log : Math.log(Math.max(question.bytesUp, 1.0));
        Guess back = bytesBack(size, question.bytesUp);
        Guess up = place.upRate.guess(now);
        Guess down = place.downRate.guess(now);
        Guess run = runThere(name, place, size, now);
        Guess[] stages = {
            encode.guess(Math.exp(upLog)),
            new Guess(upLog - up.log, up.variance, up.noise),
            place.roundTrip.guess(now),
            place.queue.guess(now),
            run,
            new Guess(back.log - down.log, back.variance + down.variance, down.noise),
            decode.guess(back.middle()),
        };
        double alone = runHere(size).log - Math.log(place.speed);
        double atBest = Math.exp(Math.min(Math.min(run.log, runUsually(name, size)), alone));
        return Prediction.remote(name, stages, energy, question.waits(name), place.late(now), atBest - run.mean());
    }

    /**
     * What a curve says, or where it knows little of this size, another place's curve moved to where this one was seen.
     *
     * <p>A function's work grows alike everywhere; only how high the curve lies is each place's own.
     */
    private static Guess shared(Curve curve, Collection<Curve> others, double size) {
        Guess own = curve.guess(size);
        if (own.variance < SURE_VARIANCE) {
            return own;
        }
        double center = curve.typical();
        Guess height = curve.guess(center);
        for (Curve other : others) {
            if (other.count() < 2) {
                continue;
            }
            Guess there = other.guess(size);
            Guess below = other.guess(center);
            double variance = there.variance + below.variance + height.variance + SHAPE_VARIANCE;
            if (variance < own.variance) {
                own = new Guess(there.log + height.log - below.log, variance, own.noise);
            }
        }
        return own;
    }
}

package lighterage.decide;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Chooses where a call runs.
 *
 * <p>The cheapest place by expected time (and energy, where that has a weight) is taken. Three things bend this: the
 * place taken before stays unless another is clearly better (hysteresis); a place that might be better and is not known
 * well is tried, as long as what that cost stays within a budget; and a call that may run twice runs at two places at
 * once, from the beginning where nobody can tell the better one (a race), else when it is late: on a node (hedging) or
 * here (overtaking).
 *
 * <p>Not safe for threads: its caller holds a lock.
 */
public final class Engine {
    /** Functions whose estimates are kept; the one not used for longest goes. */
    private static final int WORKS_MAX = 1_000;
    /** Calls of which an alternative may be tried before its budget is earned. */
    private static final int FREE_TRIES = 2;
    /** Such a try may be expected to cost this part of the best place's time more. */
    private static final double FREE_PART = 0.5;
    /** How much better than in the middle a place is hoped to be, in deviations of what is not known of it. */
    private static final double HOPED_SIGMAS = 0.5;
    private static final double HOPED_CALLS = 32;
    private static final double HOPED_SIGMAS_MAX = 3.0;
    /** How much a place varies that is known well, as a variance of the logarithm. */
    private static final double LATE_VARIANCE = 0.2;
    /** Times in a row that a function keeps everything else waiting, until it is taken to do so always. */
    private static final int HELD_MIN = 2;
    /** How unsure it is how long a call takes that was given up late. */
    private static final double LATE_NOISE = 1.0;
    /** A try here that is not earned yet may, at its worst, take this many times what the best place would. */
    private static final double EXPLORED_TIMES_MAX = 2.0;
    /** How many times as long a call takes here beside one that was left running. */
    private static final double DISTURBED = 2.0;
    private static final double DISTURBED_VARIANCE = 0.12;
    /** The part of a call's time on a node that its other half here may have cost it. */
    private static final double DISTURBED_PART = 0.5;
    /** How much of that a short call's time may be off by chance, and the most that it is taken to be, as variances. */
    private static final double JITTER = 1.0;
    private static final double JITTER_MAX = 4.0;
    /** Weight of the newest measurement in what a late answer costs, and the most that it is taken to cost. */
    private static final double COST_GAIN = 0.3;
    private static final double TURNS_SECONDS_MAX = 0.1;
    /** What a second costs that this machine computes after a call, for nobody. */
    private static final double LEFT_PRICE = 0.5;
    /** Races of a function that nobody knows, beside the budget. */
    private static final int FREE_RACES = 1;
    /**
     * A late call begins at the other place too after this part of what it would take there, at the soonest: so both
     * together take twice as long at the most, with some room for what is not known of that time.
     */
    private static final double LATE_PART = 0.8;
    /** The same where the half here may run out, and would be in the way of other calls. */
    private static final double LATE_PART_LEFT = 0.9;

    /**
     * How long a run on a node may wait there for the processor, by chance. What that makes of a short one's time, as a
     * variance of the logarithm: the most that it is taken to be, and from where on it is the likelier reason that a run
     * was long.
     */
    private static final double TURN_SECONDS = 5e-3;
    private static final double CHANCE_MAX = 4.0;
    private static final double CHANCE_LIKELY = 0.5;

    private final Policy policy;
    private final Map<String, Place> places = new HashMap<>();
    private final LinkedHashMap<String, Work> works = new LinkedHashMap<>();
    private final Habits habits = new Habits();
    private final Hopes hopes = new Hopes();
    private final Races races = new Races();
    private double totalSeconds;
    private double exploredSeconds;
    /** What it takes this machine to run a call in another thread. */
    private double helperSeconds = 1e-4;
    /** How much longer a call on a node takes beside its half here, by waiting for its turns. */
    private double turnsSeconds = 2e-3;

    /** One that knows nothing yet. */
    public Engine(Policy policy) {
        this.policy = policy;
    }

    /** The place of this name, made with these first guesses: times this machine's speed, seconds, bytes a second. */
    public Place place(String name, double speed, double roundTrip, double bytesPerSecond) {
        Place found = places.get(name);
        if (found == null) {
            found = new Place(speed, roundTrip, bytesPerSecond);
            places.put(name, found);
        }
        return found;
    }

    /** The place of this name. */
    public Place place(String name) {
        return place(name, 1.0, 2e-3, 12.5e6);
    }

    /** Forgets a node that is gone. */
    public void forget(String name) {
        places.remove(name);
        for (Work work : works.values()) {
            work.remote.remove(name);
        }
    }

    /** What it takes this machine to run a call in another thread, in seconds. */
    public void observeHelper(double seconds) {
        helperSeconds = seconds;
    }

    private Work work(String function) {
        Work found = works.remove(function);
        if (found == null) {
            found = new Work();
            while (works.size() >= WORKS_MAX) {
                Iterator<String> oldest = works.keySet().iterator();
                habits.forget(oldest.next());
                oldest.remove();
            }
        }
        // The last one is the one used last.
        works.put(function, found);
        return found;
    }

    /** What the call would take here and at each of its places, here first. */
    public List<Prediction> predict(Question question) {
        Work work = work(question.function);
        List<Prediction> predictions = new ArrayList<>();
        predictions.add(work.predictLocal(question.size, policy.energy, question.isDisturbed ? DISTURBED : 1.0));
        for (String name : question.places) {
            predictions.add(work.predictRemote(name, place(name), question, policy.energy));
        }
        return predictions;
    }

    /** Chooses among this machine and the question's places. */
    public Decision decide(Question question) {
        List<Prediction> predictions = predict(question);
        List<Prediction> open = question.mayRunHere ? predictions : predictions.subList(1, predictions.size());
        if (open.size() == 1) {
            return new Decision(open.get(0).place, Choice.ONLY, predictions);
        }
        boolean mayRace = question.mayRace && question.mayRunHere;
        if (mayRace && work(question.function).alwaysHolds()) {
            Prediction here = predictions.get(0);
            for (Prediction there : predictions.subList(1, predictions.size())) {
                double hedged = Races.hedged(there, LATE_PART * here.middle(), here.seconds);
                there.hedged = Math.max(there.seconds, hedged);
            }
        }
        Prediction best = cheapest(open);
        Choice choice = Choice.BEST;
        // Not a number is no deadline: nothing is above it.
        if (best.p95 > question.deadline) {
            best = surest(open);
            choice = Choice.DEADLINE;
        } else {
            // Where both may run at once, a place is tried beside the best one, not in its stead.
            Work work = work(question.function);
            boolean isHere = best.place.equals(Prediction.LOCAL);
            boolean isRaced = mayRace && (isHere ? !work.alwaysHolds() : work.neverHolds());
            Prediction explored = isRaced ? null : explore(question, open, best, mayRace);
            if (explored != null) {
                best = explored;
                choice = Choice.EXPLORED;
            } else {
                Prediction kept = keep(question, open, best);
                choice = kept == best ? Choice.BEST : Choice.KEPT;
                best = kept;
            }
        }
        if (!mayRace) {
            return new Decision(best.place, choice, predictions);
        }
        return beside(question, best, choice, predictions);
    }

    /** A call ran here, alone or beside what was left running; `decision` may be null. */
    public void observeLocal(String function, double size, double seconds, Decision decision, boolean isDisturbed) {
        Work work = work(function);
        work.hasRunHere = true;
        // What takes a thread longer to begin takes the scheduler longer to let it go on.
        double ratio = helperSeconds / Math.max(seconds, 1e-9);
        double noise = Math.min(JITTER * ratio * ratio, JITTER_MAX);
        if (isDisturbed) {
            work.local.observe(size, seconds / Math.sqrt(DISTURBED), DISTURBED_VARIANCE + noise);
        } else {
            work.local.observe(size, seconds, noise);
        }
        spend(function, size, Prediction.LOCAL, seconds, decision);
    }

    /** Whether an answer has said how long results are. */
    public boolean knowsResult(String function) {
        return work(function).bytesDown.count() > 0;
    }

    /** A call here had a result that would take so many bytes on the wire. */
    public void observeResult(String function, double size, double bytes) {
        work(function).result.observe(size, Math.max(bytes, 1.0));
    }

    /** A call ran at a place and came back. Where it also ran here, only what the node says of it is believed. */
    public void observeRemote(
            Asked asked, String name, Stages stages, double now, Decision decision, boolean isDisturbed) {
        double size = asked.size;
        Work work = work(asked.function);
        Place place = place(name);
        Curve curve = work.curveOf(name, place, size);
        double slowed = place.slowed(now).log;
        if (curve.count() > 0) {
            Guess expected = curve.guess(size);
            double ratio = stages.run / expected.middle();
            // A run that is hardly longer than a turn of the node's scheduler says little of how slow the node is.
            double turn = TURN_SECONDS / Math.max(expected.middle(), 1e-9);
            double chance = Math.min(turn * turn, CHANCE_MAX);
            place.slowdown.observe(Math.max(ratio, 0.2), now, expected.variance + chance);
            boolean isUsual = Math.abs(Math.log(Math.max(ratio, 1e-3)) - slowed) < 0.7;
            if (isUsual || ratio < 1.5 || chance > CHANCE_LIKELY) {
                curve.observe(size, stages.run / Math.exp(place.slowed(now).log));
            }
        } else {
            curve.observe(size, stages.run / Math.exp(slowed));
        }
        double bytesUp = Math.max(stages.bytesUp, 1);
        double bytesDown = Math.max(stages.bytesDown, 1);
        work.bytesUp.observe(stages.bytesEstimated != 0 ? stages.bytesEstimated : stages.bytesUp, bytesUp);
        work.bytesDown.observe(size, bytesDown);
        if (!isDisturbed) {
            work.encode.observe(bytesUp, stages.encode);
            work.decode.observe(bytesDown, stages.decode);
            place.observeUp(stages.bytesUp, stages.up, now);
            place.observeDown(stages.bytesDown, stages.down, now);
            if (!Double.isNaN(stages.roundTrip)) {
                place.roundTrip.observe(stages.roundTrip, now);
            }
        }
        place.observeAnswer();
        place.queue.observe(stages.queue, now);
        spend(asked.function, size, name, stages.seconds(), decision);
    }

    /** A call here was given up after `seconds`: all that is known is that it takes longer. */
    public void observeLocalLonger(String function, double size, double seconds) {
        Work work = work(function);
        if (work.local.count() > 0) {
            work.local.observeLonger(size, seconds);
        } else {
            work.local.start(size, work.runHere(size).beyond(seconds));
        }
    }

    /** A call at the place of this prediction was given up after `seconds`, in which nothing else ran here. */
    public void observeRemoteLonger(String function, double size, Prediction said, double seconds, double now) {
        Work work = work(function);
        Place place = place(said.place);
        Curve curve = work.curveOf(said.place, place, size);
        Guess run = work.runThere(said.place, place, size, now);
        // What is known less is the likelier reason: how long the function runs there, or how the place is.
        double blame = run.variance / (run.variance + LATE_VARIANCE);
        // The other half may have told meanwhile how long the function runs.
        double rest = Math.max(said.seconds - said.stage("run"), 0.0);
        double expected = rest + run.mean();
        boolean isLate = seconds > expected + 1.645 * Math.max(said.spread, run.spread());
        // Of what is late, as much again is likely still to come.
        double over = (isLate ? 2 * seconds : seconds) - rest;
        if (over > run.middle()) {
            double longer = isLate ? Math.pow(run.middle(), 1 - blame) * Math.pow(over, blame) : over;
            double alone = longer / Math.exp(place.slowed(now).log);
            if (isLate) {
                curve.observe(size, alone, LATE_NOISE);
            } else {
                curve.observeLonger(size, alone);
            }
        }
        if (isLate) {
            double ratio = Math.max(2 * seconds / Math.max(expected, 1e-6), 1.0);
            place.observeLate(Math.pow(ratio, 1 - blame), now);
        }
    }

    /** A call here was told to stop, and did so or ran out. */
    public void observeStopped(String function, boolean isStopped) {
        work(function).runsOut = isStopped ? 0.0 : 1.0;
    }

    /** While a call ran here, this program had its turn when it wanted one, or not before that was done. */
    public void observeHeld(String function, boolean isHeld) {
        Work work = work(function);
        work.held = isHeld ? work.held + 1 : 0;
        // Once may be chance.
        if (!isHeld || work.held >= HELD_MIN) {
            work.holds = isHeld;
        }
    }

    /** A call ran at two places: so long on the node; the half that lost took so much of this machine's processor. */
    public void observeRaced(
            String function, Decision decision, String winner, double thereSeconds, double extraSeconds) {
        races.raced(extraSeconds);
        Work work = work(function);
        work.calls = 0;
        work.gap = 2 * work.gap;
        boolean isHere = decision.place.equals(Prediction.LOCAL);
        String name = isHere ? decision.rival : decision.place;
        if (name == null) {
            return;
        }
        Prediction there = decision.at(name);
        boolean hereWon = winner.equals(Prediction.LOCAL);
        if (there != null && decision.choice == Choice.RACED) {
            double late = Math.min(Math.max(thereSeconds - there.seconds, 0.0), TURNS_SECONDS_MAX);
            // Of a half that lost it is known only that it would have waited longer.
            if (!hereWon || late > turnsSeconds) {
                turnsSeconds += COST_GAIN * (late - turnsSeconds);
            }
        }
        hopes.tried(name, hereWon);
    }

    /** Seconds that a call on a node would have had alone: `there` has passed, `here` of it beside its other half. */
    public static double alone(double there, double here) {
        return there - DISTURBED_PART * Math.min(here, there);
    }

    private double cost(Prediction prediction) {
        return prediction.hedged + policy.energy.secondsPerJoule * prediction.joules;
    }

    private Prediction cheapest(List<Prediction> among) {
        Prediction best = among.get(0);
        for (Prediction prediction : among) {
            best = cost(prediction) < cost(best) ? prediction : best;
        }
        return best;
    }

    private static Prediction surest(List<Prediction> among) {
        Prediction best = among.get(0);
        for (Prediction prediction : among) {
            best = prediction.p95 < best.p95 ? prediction : best;
        }
        return best;
    }

    /** The place taken before, unless the best is clearly better. */
    private Prediction keep(Question question, List<Prediction> open, Prediction best) {
        Habits.Habit habit = habits.of(question.function, question.size, best.place);
        Prediction kept = best;
        for (Prediction prediction : open) {
            if (prediction.place.equals(habit.place)) {
                kept = prediction;
                break;
            }
        }
        if (cost(kept) <= cost(best) * (1 + policy.hysteresis)) {
            return kept;
        }
        habit.place = best.place;
        return best;
    }

    /** The place that may be better than the best by its own doubt, if trying it is within the budget; else null. */
    private Prediction explore(Question question, List<Prediction> open, Prediction best, boolean mayRace) {
        String function = question.function;
        double known = cost(best);
        Habits.Habit habit = habits.of(function, question.size, best.place);
        Prediction chosen = null;
        double chosenGain = 0.0;
        for (Prediction prediction : open) {
            if (prediction == best) {
                continue;
            }
            boolean isHere = prediction.place.equals(Prediction.LOCAL);
            double rest = cost(prediction) - prediction.seconds;
            double times = 1 + habit.untried(prediction.place) / HOPED_CALLS;
            double hoped = prediction.hoped(Math.min(HOPED_SIGMAS * times, HOPED_SIGMAS_MAX));
            double gain = habit.isKnown(prediction.place) ? 0.0 : known - rest - hoped;
            double hope = known - rest - prediction.bestCase;
            if (Math.max(gain, hope) <= chosenGain) {
                continue;
            }
            boolean isGivenUp = mayRace && !(isHere && work(function).alwaysHolds());
            // A local call that cannot be given up and may take several times as long waits until that is earned.
            boolean isDear = isHere && !isGivenUp && prediction.p95 > EXPLORED_TIMES_MAX * known;
            double extra = Math.max(cost(prediction) - known, 0.0);
            if (isGivenUp) {
                // It will be overtaken by one at the best place, which begins when one begun now would have ended.
                extra = Math.min(extra, known);
            }
            boolean isNew = gain > 0 && habits.tries(function, prediction.place) < FREE_TRIES;
            boolean isFree = isNew && !isDear && extra < FREE_PART * known;
            hopes.know(prediction.place);
            boolean isPaid = exploredSeconds + extra <= policy.exploreBudget * totalSeconds;
            if (isFree || isPaid && (gain > 0 || hopes.isDue(prediction.place))) {
                chosen = prediction;
                chosenGain = Math.max(gain, hope);
            }
        }
        return chosen;
    }

    /** Where the call runs as well, and when: at once in a race, else once it is late. */
    private Decision beside(Question question, Prediction best, Choice choice, List<Prediction> predictions) {
        boolean isHere = best.place.equals(Prediction.LOCAL);
        Prediction rival = isHere ? cheapest(predictions.subList(1, predictions.size())) : predictions.get(0);
        Prediction there = isHere ? rival : best;
        Work work = work(question.function);
        double saved = Races.saving(best, rival, isHere ? turnsSeconds : 0.0);
        // The client writes the arguments while it computes; and what cannot be stopped here is in other calls' way.
        double left = isHere ? saved : saved + rival.seconds - best.seconds;
        double price = helperSeconds
                + (isHere ? there.stage("encode") : turnsSeconds)
                + LEFT_PRICE * work.runsOut * left
                + policy.energy.secondsPerJoule * rival.joules;
        double unsure = (saved - price) / Math.max(best.seconds, 1e-9);
        hopes.know(there.place);
        boolean isHoped = isHere
                ? hopes.isRaceDue(there.place) && there.bestCase + price < best.seconds
                : !work.hasRunHere && work.calls >= work.gap;
        double budget = policy.raceBudget;
        if (isHere && work.alwaysHolds()) {
            // The other half would not get its turn.
            return new Decision(Prediction.LOCAL, choice, predictions, null, 0.0, unsure);
        }
        int tries = habits.tries(question.function, Prediction.LOCAL);
        if (isHere && work.isNew() && tries < FREE_RACES && budget > 0) {
            // Whatever the node would need beside the run, the call may take here before it is worth the other one.
            double after = rival.seconds - rival.stage("run");
            return new Decision(Prediction.LOCAL, Choice.RACED, predictions, rival.place, after, unsure);
        }
        boolean mayPlan = !question.isDisturbed && (isHere || work.neverHolds()) && races.hasBudget(budget);
        if (mayPlan && (isHoped || races.isWorth(unsure))) {
            double after = isHere ? rival.wait : there.stage("encode");
            return new Decision(best.place, Choice.RACED, predictions, rival.place, after, unsure);
        }
        double after = lateAfter(work, best, rival, choice);
        if (isHere && (budget == 0 || Races.saving(best, rival, after) < helperSeconds)) {
            return new Decision(Prediction.LOCAL, choice, predictions, null, 0.0, unsure);
        }
        return new Decision(best.place, choice, predictions, rival.place, after, unsure);
    }

    /** Seconds after which a call at the best place is late, and begins at the other one too. */
    private double lateAfter(Work work, Prediction best, Prediction rival, Choice choice) {
        boolean isHere = best.place.equals(Prediction.LOCAL);
        if (work.alwaysHolds()) {
            // The call takes both times then: there is no use in being later.
            return LATE_PART * rival.middle();
        }
        // Not before it is late, for another half is work, and one here makes the one on the node later still; but not
        // later than the other place would have taken. Of a place that is tried it was hoped that it takes what it does
        // at best.
        double usual = choice == Choice.EXPLORED ? best.bestCase : best.seconds + best.spread;
        double soon = (work.runsOut == 0.0 ? LATE_PART : LATE_PART_LEFT) * rival.middle();
        double late = Math.min(best.p95, Math.max(usual, rival.seconds));
        return Math.max(Math.max(soon, late), rival.wait) + (isHere ? 0.0 : turnsSeconds);
    }

    private void spend(String function, double size, String name, double seconds, Decision decision) {
        totalSeconds += seconds;
        if (decision != null) {
            races.called(decision.doubt, seconds, policy.raceBudget);
            work(function).calls++;
            habits.of(function, size, name).ran(name);
            hopes.called();
        }
        habits.tried(function, name);
        if (decision != null && decision.choice == Choice.EXPLORED) {
            double others = Double.POSITIVE_INFINITY;
            for (Prediction prediction : decision.predictions) {
                if (!prediction.place.equals(decision.place)) {
                    others = Math.min(others, prediction.seconds);
                }
            }
            double lost = Math.max(seconds - others, 0.0);
            exploredSeconds += lost;
            hopes.tried(name, lost > 0);
        }
    }
}

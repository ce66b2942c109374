"""Chooses where a call runs.

The cheapest place by expected time (and energy, where that has a weight) is taken. Three things bend this: the place
taken before stays unless another is clearly better (hysteresis); a place that might be better and is not known well is
tried, as long as what that cost stays within a budget; and a call that may run twice runs at two places at once, from the
beginning where nobody can tell the better one (a race), else when it is late: on a node (hedging) or here (overtaking).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from .model import LOCAL, Energy, Place, Prediction, Question, Stages, Work, predict_local, predict_remote
from .race import Races, hedged, saving

#: Functions whose estimates are kept; the one not used for longest goes.
WORKS_MAX: Final = 1_000
#: Calls of which an alternative may be tried before its budget is earned.
FREE_TRIES: Final = 2
#: Such a try may be expected to cost this part of the best place's time more.
FREE_PART: Final = 0.5
#: Times that a place is tried at about one size, and calls of that size after which it is not known any more.
KNOWN_TRIES: Final = 5
KNOWN_CALLS: Final = 16
#: How much better than in the middle a place is hoped to be, in standard deviations of what is not known of it: so many, and as
#: many again for each so many calls that it was not tried, up to the most.
HOPED_SIGMAS: Final = 0.5
HOPED_CALLS: Final = 32
HOPED_SIGMAS_MAX: Final = 3.0
#: Calls before a place that was slowed down is tried again: at first, and after many tries in vain.
HOPE_GAP: Final = 8
HOPE_GAP_MAX: Final = 32
#: How much a place varies that is known well, as a variance of the logarithm.
LATE_VARIANCE: Final = 0.2
#: Times in a row that a function keeps the interpreter, until it is taken to do so always.
HELD_MIN: Final = 2
#: How unsure it is how long a call takes that was given up late.
LATE_NOISE: Final = 1.0
#: A try here that is not earned yet may, at its worst, take this many times what the best place would.
EXPLORED_TIMES_MAX: Final = 2.0
#: How many times as long a call takes here beside one that was left running.
DISTURBED: Final = 2.0
DISTURBED_VARIANCE: Final = 0.12
#: The part of a call's time on a node that its other half here may have cost it.
DISTURBED_PART: Final = 0.5
#: How much of that a short call's time may be off by chance, and the most that it is taken to be, as variances.
JITTER: Final = 1.0
JITTER_MAX: Final = 4.0
#: How long a run on a node may wait there for the processor, by chance. What that makes of a short one's time, as a variance of
#: the logarithm: the most that it is taken to be, and from where on it is the likelier reason that a run was long.
TURN_SECONDS: Final = 5e-3
CHANCE_MAX: Final = 4.0
CHANCE_LIKELY: Final = 0.5
#: Until they were measured; and the weight of the newest measurement.
HELPER_SECONDS: Final = 1e-4
TURNS_SECONDS: Final = 2e-3
TURNS_SECONDS_MAX: Final = 0.1
COST_GAIN: Final = 0.3
#: What a second costs that this machine computes after a call, for nobody.
LEFT_PRICE: Final = 0.5
#: Races of a function that nobody knows, beside the budget.
FREE_RACES: Final = 1
#: Calls before a place that was slowed down is raced again: that costs next to no time.
RACED_GAP_MAX: Final = 6
#: A late call begins at the other place too after this part of what it would take there, at the soonest: so both together
#: take twice as long at the most, with some room for what is not known of that time.
LATE_PART: Final = 0.8
#: The same where the half here may run out, and would be in the way of other calls.
LATE_PART_LEFT: Final = 0.9


class Choice(Enum):
    """Why a place was chosen."""

    ONLY = "the only place"
    BEST = "expected to finish first"
    KEPT = "chosen before, and no other is clearly better"
    EXPLORED = "tried, to know it better"
    RACED = "both at once: nobody can tell which is sooner"
    DEADLINE = "most likely to meet the deadline"


@dataclass(frozen=True)
class Policy:
    """How the engine decides. The defaults are those of the study's report."""

    #: Another place must be better by this part of the time to take over.
    hysteresis: float = 0.03
    #: Part of all time that trying places may cost.
    explore_budget: float = 0.02
    #: Part of the calls that may be raced, and of all time that the client may compute in vain for it.
    race_budget: float = 0.1
    energy: Energy = Energy()


@dataclass(frozen=True)
class Decision:
    """Where a call runs, and why."""

    place: str
    choice: Choice
    predictions: tuple[Prediction, ...]
    #: The place that runs the call as well, and seconds after which it does; none where it runs once.
    rival: str | None = None
    rival_after: float = 0.0
    #: What knowing the better place would have saved, as a part of the call's time.
    doubt: float = 0.0

    @property
    def chosen(self) -> Prediction:
        return next(prediction for prediction in self.predictions if prediction.place == self.place)


@dataclass
class _Habit:
    """What was chosen for calls of about this size."""

    place: str = LOCAL
    #: By place: how often it ran there, and the calls since then.
    tries: dict[str, int] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)

    def is_known(self, place: str) -> bool:
        """Whether there is nothing to learn of it now: what is left of its doubt is how much it varies."""
        return self.tries.get(place, 0) >= KNOWN_TRIES and self.since.get(place, 0) < KNOWN_CALLS

    def untried(self, place: str) -> int:
        """Calls since it ran there."""
        return self.since.get(place, sum(self.tries.values()))

    def ran(self, place: str) -> None:
        for other in self.since:
            self.since[other] += 1
        self.tries[place] = self.tries.get(place, 0) + 1
        self.since[place] = 0


@dataclass
class _Hope:
    """Calls since a place was last tried in the hope that what slowed it down is over, and before it is tried again."""

    calls: int = 0
    gap: int = HOPE_GAP


class Engine:
    """Estimates and choices of one client. Not safe for threads: its caller holds a lock."""

    def __init__(self, policy: Policy = Policy()) -> None:
        self.policy = policy
        self._places: dict[str, Place] = {}
        self._works: dict[str, Work] = {}
        self._habits: dict[tuple[str, int], _Habit] = {}
        self._total_seconds = 0.0
        self._explored_seconds = 0.0
        self._tries: dict[tuple[str, str], int] = {}
        self._hopes: dict[str, _Hope] = {}
        self._races = Races()
        #: What it takes this machine to run a call in another thread.
        self.helper_seconds = HELPER_SECONDS
        #: How much longer a call on a node takes beside its half here, by waiting for its turns.
        self.turns_seconds = TURNS_SECONDS

    def place(self, name: str, speed: float = 1.0, round_trip: float = 2e-3, bytes_per_second: float = 12.5e6) -> Place:
        """The place of this name, made with these first guesses (`speed`: times this machine's)."""
        found = self._places.get(name)
        if found is None:
            found = self._places[name] = Place(speed, round_trip, bytes_per_second)
        return found

    def forget(self, name: str) -> None:
        """Forgets a node that is gone."""
        self._places.pop(name, None)
        for work in self._works.values():
            work.remote.pop(name, None)

    def work(self, function: str) -> Work:
        found = self._works.pop(function, None)
        if found is None:
            found = Work()
            while len(self._works) >= WORKS_MAX:
                oldest = next(iter(self._works))
                del self._works[oldest]
                self._habits = {key: habit for key, habit in self._habits.items() if key[0] != oldest}
                self._tries = {key: tries for key, tries in self._tries.items() if key[0] != oldest}
        # The last one is the one used last.
        self._works[function] = found
        return found

    def predict(self, question: Question) -> tuple[Prediction, ...]:
        """What the call would take here and at each of its places."""
        work, energy = self.work(question.function), self.policy.energy
        remote = [predict_remote(work, name, self.place(name), question, energy) for name in question.places]
        return (predict_local(work, question.size, energy, DISTURBED if question.is_disturbed else 1.0), *remote)

    def decide(self, question: Question) -> Decision:
        """Chooses among this machine and the question's places."""
        function, size, deadline = question.function, question.size, question.deadline
        predictions = self.predict(question)
        open_ = predictions if question.may_run_here else predictions[1:]
        if len(open_) == 1:
            return Decision(open_[0].place, Choice.ONLY, predictions)
        may_race = question.may_race and question.may_run_here
        if may_race and self.work(function).holds:
            here = predictions[0]
            for there in predictions[1:]:
                there.hedged = max(there.seconds, hedged(there, LATE_PART * here.middle, here.seconds))
        best = min(open_, key=self._cost)
        choice = Choice.BEST
        if deadline is not None and best.p95 > deadline:
            best = min(open_, key=lambda prediction: prediction.p95)
            choice = Choice.DEADLINE
        else:
            # Where both may run at once, a place is tried beside the best one, not in its stead.
            holds = self.work(function).holds
            is_raced = may_race and (not holds if best.place == LOCAL else holds is False)
            explored = None if is_raced else self._explore(function, size, open_, best, may_race)
            if explored is not None:
                best, choice = explored, Choice.EXPLORED
            else:
                best, choice = self._keep(function, size, open_, best)
        if not may_race:
            return Decision(best.place, choice, predictions)
        return self._beside(function, best, choice, predictions, question.is_disturbed)

    def observe_local(
        self, function: str, size: float, seconds: float, decision: Decision | None = None, is_disturbed: bool = False
    ) -> None:
        """A call ran here; how long it takes alone is known less well where it was disturbed."""
        work = self.work(function)
        work.has_run_here = True
        # What takes a thread longer to begin takes the scheduler longer to let it go on.
        noise = min(JITTER * (self.helper_seconds / max(seconds, 1e-9)) ** 2, JITTER_MAX)
        if is_disturbed:
            work.local.observe(size, seconds / math.sqrt(DISTURBED), DISTURBED_VARIANCE + noise)
        else:
            work.local.observe(size, seconds, noise)
        self._spend(function, size, LOCAL, seconds, decision)

    def knows_result(self, function: str) -> bool:
        """Whether an answer has said how long results are."""
        return self.work(function).bytes_down.count > 0

    def observe_result(self, function: str, size: float, bytes_: float) -> None:
        """A call here had a result that would take so much on the wire."""
        self.work(function).result.observe(size, max(bytes_, 1.0))

    def observe_remote(
        self,
        function: str,
        name: str,
        size: float,
        stages: Stages,
        now: float,
        *,
        decision: Decision | None = None,
        is_disturbed: bool = False,
    ) -> None:
        """A call ran at a place and came back. Where it also ran here, only what the node says of it is believed."""
        work, place = self.work(function), self.place(name)
        curve = work.curve_of(name, place, size)
        slowed = place.slowed(now)
        if curve.count:
            expected = curve.guess(size)
            ratio = stages.run / expected.middle
            # A run that is hardly longer than a turn of the node's scheduler says little of how slow the node is.
            chance = min((TURN_SECONDS / max(expected.middle, 1e-9)) ** 2, CHANCE_MAX)
            place.slowdown.observe(max(ratio, 0.2), now, noise=expected.variance + chance)
            if abs(math.log(max(ratio, 1e-3)) - slowed.log) < 0.7 or ratio < 1.5 or chance > CHANCE_LIKELY:
                curve.observe(size, stages.run / math.exp(place.slowed(now).log))
        else:
            curve.observe(size, stages.run / math.exp(slowed.log))
        work.bytes_up.observe(stages.bytes_estimated or stages.bytes_up, max(stages.bytes_up, 1))
        work.bytes_down.observe(size, max(stages.bytes_down, 1))
        if not is_disturbed:
            work.encode.observe(max(stages.bytes_up, 1), stages.encode)
            work.decode.observe(max(stages.bytes_down, 1), stages.decode)
            place.observe_transfer((stages.bytes_up, stages.up), (stages.bytes_down, stages.down), now)
            if stages.round_trip is not None:
                place.round_trip.observe(stages.round_trip, now)
        place.observe_answer()
        place.queue.observe(stages.queue, now)
        self._spend(function, size, name, stages.seconds, decision)

    def observe_local_longer(self, function: str, size: float, seconds: float) -> None:
        """A call here was given up after `seconds`: all that is known is that it takes longer."""
        work = self.work(function)
        if work.local.count:
            work.local.observe_longer(size, seconds)
        else:
            work.local.start(size, work.run_here(size).beyond(seconds))

    def observe_remote_longer(self, function: str, size: float, prediction: Prediction, seconds: float, now: float) -> None:
        """A call at the place of this prediction was given up after `seconds`, in which nothing else ran here."""
        name = prediction.place
        work, place = self.work(function), self.place(name)
        curve = work.curve_of(name, place, size)
        run = work.run_there(name, place, size, now)
        # What is known less is the likelier reason: how long the function runs there, or how the place is.
        blame = run.variance / (run.variance + LATE_VARIANCE)
        # The other half may have told meanwhile how long the function runs.
        rest = max(prediction.seconds - prediction.stage("run"), 0.0)
        expected = rest + run.mean
        is_late = seconds > expected + 1.645 * max(prediction.spread, run.spread)
        # Of what is late, as much again is likely still to come.
        over = (2 * seconds if is_late else seconds) - rest
        if over > run.middle:
            longer = run.middle ** (1 - blame) * over**blame if is_late else over
            run_alone = longer / math.exp(place.slowed(now).log)
            if is_late:
                curve.observe(size, run_alone, LATE_NOISE)
            else:
                curve.observe_longer(size, run_alone)
        if is_late:
            place.observe_late(max(2 * seconds / max(expected, 1e-6), 1.0) ** (1 - blame), now)

    def observe_stopped(self, function: str, is_stopped: bool) -> None:
        """A call here was told to stop, and did so or ran out."""
        self.work(function).runs_out = 0.0 if is_stopped else 1.0

    def observe_held(self, function: str, is_held: bool) -> None:
        """While a call ran here, this program had its turn when it wanted one, or not before that was done."""
        work = self.work(function)
        work.held = work.held + 1 if is_held else 0
        # Once may be chance.
        if not is_held or work.held >= HELD_MIN:
            work.holds = is_held

    def observe_raced(self, function: str, decision: Decision, winner: str, there_seconds: float, extra_seconds: float) -> None:
        """A call ran at two places: so long on the node; the half that lost took so much of this machine's processor."""
        self._races.raced(extra_seconds)
        work = self.work(function)
        work.calls, work.gap = 0, 2 * work.gap
        name = decision.place if decision.place != LOCAL else decision.rival
        there = next((prediction for prediction in decision.predictions if prediction.place == name), None)
        if there is not None and decision.choice is Choice.RACED:
            late = min(max(there_seconds - there.seconds, 0.0), TURNS_SECONDS_MAX)
            # Of a half that lost it is known only that it would have waited longer.
            if winner != LOCAL or late > self.turns_seconds:
                self.turns_seconds += COST_GAIN * (late - self.turns_seconds)
        if name is not None:
            hoped = self._hopes.setdefault(name, _Hope())
            hoped.gap = min(2 * hoped.gap, HOPE_GAP_MAX) if winner == LOCAL else HOPE_GAP
            hoped.calls = 0

    def _cost(self, prediction: Prediction) -> float:
        return prediction.hedged + self.policy.energy.weight * prediction.joules

    def _keep(self, function: str, size: float, open_: tuple[Prediction, ...], best: Prediction) -> tuple[Prediction, Choice]:
        habit = self._habit(function, size, best.place)
        kept = next((prediction for prediction in open_ if prediction.place == habit.place), best)
        if self._cost(kept) <= self._cost(best) * (1 + self.policy.hysteresis):
            return kept, Choice.BEST if kept is best else Choice.KEPT
        habit.place = best.place
        return best, Choice.BEST

    def _habit(self, function: str, size: float, place: str) -> _Habit:
        # Sizes within a factor of two share a habit.
        return self._habits.setdefault((function, round(math.log2(max(size, 1.0)))), _Habit(place))

    def _explore(
        self,
        function: str,
        size: float,
        open_: tuple[Prediction, ...],
        best: Prediction,
        may_race: bool,
    ) -> Prediction | None:
        """The place that may be better than the best by its own doubt, if trying it is within the budget."""
        known = self._cost(best)
        habit = self._habit(function, size, best.place)
        chosen, chosen_gain = None, 0.0
        for prediction in open_:
            if prediction is best:
                continue
            rest = self._cost(prediction) - prediction.seconds
            sigmas = min(HOPED_SIGMAS * (1 + habit.untried(prediction.place) / HOPED_CALLS), HOPED_SIGMAS_MAX)
            gain, hope = known - rest - prediction.hoped(sigmas), known - rest - prediction.best_case
            if habit.is_known(prediction.place):
                gain = 0.0
            if max(gain, hope) <= chosen_gain:
                continue
            is_given_up = may_race and not (prediction.place == LOCAL and self.work(function).holds)
            # A local call that cannot be given up and may take several times as long is not tried before that is earned.
            is_dear = prediction.place == LOCAL and not is_given_up and prediction.p95 > EXPLORED_TIMES_MAX * known
            extra = max(self._cost(prediction) - known, 0.0)
            if is_given_up:
                # It will be overtaken by one at the best place, which begins when one begun now would have ended.
                extra = min(extra, known)
            is_new = gain > 0 and self._tries.get((function, prediction.place), 0) < FREE_TRIES
            free = is_new and not is_dear and extra < FREE_PART * known
            paid = self._explored_seconds + extra <= self.policy.explore_budget * self._total_seconds
            hoped = self._hopes.setdefault(prediction.place, _Hope())
            if free or (paid and (gain > 0 or hoped.calls >= hoped.gap)):
                chosen, chosen_gain = prediction, max(gain, hope)
        return chosen

    def _beside(
        self, function: str, best: Prediction, choice: Choice, predictions: tuple[Prediction, ...], is_disturbed: bool
    ) -> Decision:
        """Where the call runs as well, and when: at once in a race, else once it is late."""
        is_here = best.place == LOCAL
        rival = min(predictions[1:], key=self._cost) if is_here else predictions[0]
        there = rival if is_here else best
        work = self.work(function)
        saved = saving(best, rival, self.turns_seconds if is_here else 0.0)
        # The client writes the arguments while it computes; and what cannot be stopped here is in the way of other calls.
        left = saved if is_here else saved + rival.seconds - best.seconds
        price = (
            self.helper_seconds
            + (there.stage("encode") if is_here else self.turns_seconds)
            + LEFT_PRICE * work.runs_out * left
            + self.policy.energy.weight * rival.joules
        )
        unsure = (saved - price) / max(best.seconds, 1e-9)
        hoped = self._hopes.setdefault(there.place, _Hope())
        if is_here:
            is_hoped = hoped.calls >= min(hoped.gap, RACED_GAP_MAX) and there.best_case + price < best.seconds
        else:
            is_hoped = not work.has_run_here and work.calls >= work.gap
        budget = self.policy.race_budget
        if is_here and work.holds:
            # The other half would not get its turn.
            return Decision(LOCAL, choice, predictions, doubt=unsure)
        if is_here and work.is_new and self._tries.get((function, LOCAL), 0) < FREE_RACES and budget:
            # Whatever the node would need beside the run, the call may take here before it is worth the other one.
            return Decision(LOCAL, Choice.RACED, predictions, rival.place, rival.seconds - rival.stage("run"), unsure)
        may_plan = not is_disturbed and (is_here or work.holds is False) and self._races.has_budget(budget)
        if may_plan and (is_hoped or self._races.is_worth(unsure)):
            after = rival.wait if is_here else there.stage("encode")
            return Decision(best.place, Choice.RACED, predictions, rival.place, after, unsure)
        if work.holds:
            # The call takes both times then: there is no use in being later.
            after = LATE_PART * rival.middle
        else:
            # Not before it is late, for another half is work, and one here makes the one on the node later still; but not
            # later than the other place would have taken. Of a place that is tried it was hoped that it takes what it does
            # at best.
            usual = best.best_case if choice is Choice.EXPLORED else best.seconds + best.spread
            soon = (LATE_PART if work.runs_out == 0.0 else LATE_PART_LEFT) * rival.middle
            after = max(soon, min(best.p95, max(usual, rival.seconds)), rival.wait) + (0.0 if is_here else self.turns_seconds)
        if is_here and (not budget or saving(best, rival, after) < self.helper_seconds):
            return Decision(LOCAL, choice, predictions, doubt=unsure)
        return Decision(best.place, choice, predictions, rival.place, after, unsure)

    def _spend(self, function: str, size: float, name: str, seconds: float, decision: Decision | None) -> None:
        self._total_seconds += seconds
        if decision is not None:
            self._races.called(decision.doubt, seconds, self.policy.race_budget)
            self.work(function).calls += 1
            self._habit(function, size, name).ran(name)
            for hoped in self._hopes.values():
                hoped.calls += 1
        self._tries[(function, name)] = self._tries.get((function, name), 0) + 1
        if decision is not None and decision.choice is Choice.EXPLORED:
            others = [prediction.seconds for prediction in decision.predictions if prediction.place != decision.place]
            lost = max(seconds - min(others), 0.0)
            self._explored_seconds += lost
            hoped = self._hopes.setdefault(name, _Hope())
            hoped.gap = min(2 * hoped.gap, HOPE_GAP_MAX) if lost else HOPE_GAP
            hoped.calls = 0


def alone(there: float, here: float, turns: float = 0.0) -> float:
    """Seconds that a call on a node would have had alone: `there` has passed, `here` of it beside its other half.

    For its turns beside that it may have waited so long.
    """
    beside = min(here, there)
    return there - max(DISTURBED_PART * beside, min(turns, beside))

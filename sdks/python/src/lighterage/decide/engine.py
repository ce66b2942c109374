"""Chooses where a call runs.

The cheapest place by expected time (and energy, where that has a weight) is taken. Three things bend this: the place
taken before stays unless another is clearly better (hysteresis); a place that might be better and is not known well is
tried, as long as what that cost stays within a budget; and a remote call of a pure function that takes longer than
nineteen in twenty should is doubled by a local one (hedging).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from .model import LOCAL, Energy, Place, Prediction, Stages, Work, predict_local, predict_remote

#: Functions whose estimates are kept; the one not used for longest goes.
WORKS_MAX: Final = 1_000
_NO_WAITS: Final[Mapping[str, float]] = {}
#: Calls of which an alternative may be tried before its budget is earned.
FREE_TRIES: Final = 2
#: Such a try may be expected to cost this part of the best place's time more.
FREE_PART: Final = 0.5
#: Calls before a place that was slowed down is tried again: at first, and after many tries in vain.
HOPE_GAP: Final = 8
HOPE_GAP_MAX: Final = 32
#: How much a place varies that is known well, as a variance of the logarithm.
LATE_VARIANCE: Final = 0.2
#: A try here may, at its worst, take this many times what the best place would.
EXPLORED_TIMES_MAX: Final = 2.0


class Choice(Enum):
    """Why a place was chosen."""

    ONLY = "the only place"
    BEST = "expected to finish first"
    KEPT = "chosen before, and no other is clearly better"
    EXPLORED = "tried, to know it better"
    DEADLINE = "most likely to meet the deadline"


@dataclass(frozen=True)
class Policy:
    """How the engine decides. The defaults are those of the study's report."""

    #: Another place must be better by this part of the time to take over.
    hysteresis: float = 0.03
    #: Part of all time that trying places may cost.
    explore_budget: float = 0.02
    energy: Energy = Energy()


@dataclass(frozen=True)
class Decision:
    """Where a call runs, and why."""

    place: str
    choice: Choice
    predictions: tuple[Prediction, ...]
    #: Seconds after which a pure function is started locally as well; none where that never pays.
    hedge_after: float | None

    @property
    def chosen(self) -> Prediction:
        return next(prediction for prediction in self.predictions if prediction.place == self.place)


@dataclass
class _Habit:
    """What was chosen for calls of about this size, and what trying has cost."""

    place: str = LOCAL
    since: dict[str, int] | None = None


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
        # The last one is the one used last.
        self._works[function] = found
        return found

    def predict(
        self,
        function: str,
        size: float,
        bytes_up: float,
        places: Iterable[str],
        now: float,
        waits: Mapping[str, float] = _NO_WAITS,
    ) -> tuple[Prediction, ...]:
        """What the call would take here and at each of these places; `waits` are seconds that a place needs before."""
        work, energy = self.work(function), self.policy.energy
        remote = [
            predict_remote(work, name, self.place(name), size, bytes_up, now, energy, waits.get(name, 0.0)) for name in places
        ]
        return (predict_local(work, size, energy), *remote)

    def decide(
        self,
        function: str,
        size: float,
        bytes_up: float,
        places: Iterable[str],
        now: float,
        deadline: float | None = None,
        may_run_here: bool = True,
        waits: Mapping[str, float] = _NO_WAITS,
        may_hedge: bool = False,
    ) -> Decision:
        """Chooses among this machine and `places`.

        `size` is what the function's work grows with, `bytes_up` what its arguments take on the wire, `deadline` in seconds
        from now, `waits` the seconds that a place needs before; `may_hedge` says that a late call will be doubled.
        """
        predictions = self.predict(function, size, bytes_up, places, now, waits)
        open_ = predictions if may_run_here else predictions[1:]
        if len(open_) == 1:
            return Decision(open_[0].place, Choice.ONLY, predictions, None)
        best = min(open_, key=self._cost)
        choice = Choice.BEST
        if deadline is not None and best.p95 > deadline:
            best = min(open_, key=lambda prediction: prediction.p95)
            choice = Choice.DEADLINE
        else:
            explored = self._explore(function, open_, best, may_hedge and may_run_here)
            if explored is not None:
                best, choice = explored, Choice.EXPLORED
            else:
                best, choice = self._keep(function, size, open_, best)
        return Decision(best.place, choice, predictions, self._hedge(best, choice, predictions) if may_run_here else None)

    def observe_local(self, function: str, size: float, seconds: float, decision: Decision | None = None) -> None:
        """A call ran here."""
        self.work(function).local.observe(size, seconds)
        self._spend(function, LOCAL, seconds, decision)

    def observe_remote(
        self, function: str, name: str, size: float, stages: Stages, now: float, decision: Decision | None = None
    ) -> None:
        """A call ran at a place and came back."""
        work, place = self.work(function), self.place(name)
        curve = work.curve_of(name, place, size)
        slowed = place.slowed(now)
        if curve.count >= 3:
            expected = curve.guess(size)
            ratio = stages.run / expected.middle
            place.slowdown.observe(max(ratio, 0.2), now, noise=expected.variance)
            if abs(math.log(max(ratio, 1e-3)) - slowed.log) < 0.7 or ratio < 1.5:
                curve.observe(size, stages.run / math.exp(place.slowed(now).log))
        else:
            curve.observe(size, stages.run / math.exp(slowed.log))
        work.encode.observe(max(stages.bytes_up, 1), stages.encode)
        work.decode.observe(max(stages.bytes_down, 1), stages.decode)
        work.bytes_up.observe(stages.bytes_estimated or stages.bytes_up, max(stages.bytes_up, 1))
        work.bytes_down.observe(size, max(stages.bytes_down, 1))
        place.observe_transfer((stages.bytes_up, stages.up), (stages.bytes_down, stages.down), now)
        if stages.round_trip is not None:
            place.round_trip.observe(stages.round_trip, now)
        place.observe_answer()
        place.queue.observe(stages.queue, now)
        self._spend(function, name, stages.seconds, decision)

    def observe_late(self, function: str, name: str, size: float, prediction: Prediction, seconds: float, now: float) -> None:
        """A call at this place was given up after `seconds`: all that is known is that it takes longer."""
        work, place = self.work(function), self.place(name)
        curve = work.curve_of(name, place, size)
        run = work.run_there(name, place, size, now)
        log = math.log(max(2 * seconds / max(prediction.seconds, 1e-6), 1.0))
        # What is known less is the likelier reason: how long the function runs there, or how the place is.
        blame = run.variance / (run.variance + LATE_VARIANCE)
        curve.observe(size, run.middle * math.exp(blame * log))
        place.observe_late(math.exp((1 - blame) * log), now)

    def _cost(self, prediction: Prediction) -> float:
        return prediction.seconds + self.policy.energy.weight * prediction.joules

    def _keep(
        self, function: str, size: float, open_: tuple[Prediction, ...], best: Prediction
    ) -> tuple[Prediction, Choice]:
        # Sizes within a factor of two share a habit.
        habit = self._habits.setdefault((function, round(math.log2(max(size, 1.0)))), _Habit(best.place))
        kept = next((prediction for prediction in open_ if prediction.place == habit.place), best)
        if self._cost(kept) <= self._cost(best) * (1 + self.policy.hysteresis):
            return kept, Choice.BEST if kept is best else Choice.KEPT
        habit.place = best.place
        return best, Choice.BEST

    def _explore(
        self, function: str, open_: tuple[Prediction, ...], best: Prediction, may_hedge: bool
    ) -> Prediction | None:
        """The place that may be better than the best by its own doubt, if trying it is within the budget."""
        known = self._cost(best)
        chosen, chosen_gain = None, 0.0
        for prediction in open_:
            if prediction is best:
                continue
            rest = self._cost(prediction) - prediction.seconds
            gain, hope = known - rest - prediction.optimistic, known - rest - prediction.best_case
            if max(gain, hope) <= chosen_gain:
                continue
            if prediction.place == LOCAL and prediction.p95 > EXPLORED_TIMES_MAX * known:
                # A local call cannot be hedged: one that may take several times as long is not tried.
                continue
            extra = max(self._cost(prediction) - known, 0.0)
            if may_hedge and best.place == LOCAL:
                # It will be overtaken by a local call that begins when one begun now would have ended.
                extra = min(extra, known)
            free = gain > 0 and self._tries.get((function, prediction.place), 0) < FREE_TRIES and extra < FREE_PART * known
            paid = self._explored_seconds + extra <= self.policy.explore_budget * self._total_seconds
            hoped = self._hopes.setdefault(prediction.place, _Hope())
            if free or (paid and (gain > 0 or hoped.calls >= hoped.gap)):
                chosen, chosen_gain = prediction, max(gain, hope)
        for hoped in self._hopes.values():
            hoped.calls += 1
        return chosen

    def _hedge(self, best: Prediction, choice: Choice, predictions: tuple[Prediction, ...]) -> float | None:
        if best.place == LOCAL:
            return None
        here = predictions[0].seconds
        # Not later than running here would have taken: so a wrong choice costs twice the right one at the most.
        return min(best.p95, max(here, best.best_case if choice is Choice.EXPLORED else best.seconds))

    def _spend(self, function: str, name: str, seconds: float, decision: Decision | None) -> None:
        self._total_seconds += seconds
        self._tries[(function, name)] = self._tries.get((function, name), 0) + 1
        if decision is not None and decision.choice is Choice.EXPLORED:
            others = [prediction.seconds for prediction in decision.predictions if prediction.place != decision.place]
            lost = max(seconds - min(others), 0.0)
            self._explored_seconds += lost
            hoped = self._hopes.setdefault(name, _Hope())
            hoped.gap = min(2 * hoped.gap, HOPE_GAP_MAX) if lost else HOPE_GAP
            hoped.calls = 0

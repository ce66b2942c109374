"""What a call will take at a place: its stages estimated one by one and added up.

    local    run
    remote   encode, up, round trip, queue, run, down, decode

A function's run time follows the size of its arguments by a power; a place is faster or slower than this machine by a
factor, known roughly from both benchmarks before the first call, and may be slowed down for a while by other work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from .estimate import SPREAD_MAX, Curve, Guess, Level

LOCAL: Final = "local"

#: Before anything is known of a function: a nanosecond of work for each byte, give or take a factor of twenty.
WORK_SECONDS_PER_BYTE: Final = 1e-9
WORK_VARIANCE: Final = 9.0
#: Benchmarks say a place's speed on one kind of work only.
SPEED_VARIANCE: Final = 0.12
#: A curve this sure of a size needs no other's help; and how alike curves of two places are.
SURE_VARIANCE: Final = 0.02
SHAPE_VARIANCE: Final = 0.01
#: That calls were late is forgotten by half in this many seconds.
LATE_HALF_LIFE: Final = 60.0
#: The stages of a local and of a remote call, and what this machine does meanwhile.
_LOCAL_NAMES: Final = ("run",)
_REMOTE_NAMES: Final = ("encode", "up", "round trip", "queue", "run", "down", "decode")
_POWERS: Final = {1: ("compute",), 7: ("compute", "radio", "wait", "wait", "wait", "radio", "compute")}
#: A probe is short: it begins slowly and knows one direction only.
PROBE_VARIANCE: Final = 0.05
#: Bytes below which a transfer says little about the rate.
RATE_BYTES_MIN: Final = 16_384


@dataclass(frozen=True)
class Stages:
    """What one remote call took, in seconds, and how many bytes it sent and received."""

    encode: float
    up: float
    #: None where it cannot be told from the transfer.
    round_trip: float | None
    queue: float
    run: float
    down: float
    decode: float
    bytes_up: int
    bytes_down: int
    #: What `bytes_up` was taken to be before; 0 where it was known.
    bytes_estimated: int = 0
    #: What was taken off the transfer as its round trip, where that is None.
    round_trip_expected: float = 0.0

    @property
    def seconds(self) -> float:
        """All of them."""
        round_trip = self.round_trip_expected if self.round_trip is None else self.round_trip
        return self.encode + self.up + round_trip + self.queue + self.run + self.down + self.decode


@dataclass(frozen=True)
class Energy:
    """What this machine draws, in watts, while it computes, sends and waits. Zero weight: only time counts."""

    compute: float = 5.0
    radio: float = 1.5
    wait: float = 0.5
    #: Seconds that a joule is worth.
    weight: float = 0.0


class Term(NamedTuple):
    """One stage of a prediction."""

    name: str
    seconds: float
    spread: float


class Prediction:
    """What a call is expected to take at a place: the sum of its stages, taken as independent."""

    __slots__ = ("_names", "_stages", "best_case", "doubt", "hedged", "joules", "p95", "place", "seconds", "spread", "wait")

    def __init__(
        self,
        place: str,
        names: tuple[str, ...],
        stages: tuple[Guess, ...],
        energy: Energy,
        *,
        wait: float = 0.0,
        late: float = 1.0,
    ) -> None:
        """`wait` is known beforehand; `late` is what the whole is multiplied by."""
        total, square, chance, joules = 0.0, 0.0, 0.0, 0.0
        powers = _POWERS[len(stages)]
        for stage, power in zip(stages, powers, strict=True):
            variance, mean = min(stage.variance, SPREAD_MAX), stage.mean
            total += mean
            square += mean * mean * math.expm1(variance)
            chance += mean * mean * math.expm1(min(stage.noise, variance))
            joules += mean * getattr(energy, power)
        self.place = place
        self.seconds = total * late + wait
        self.spread = math.sqrt(square) * late
        #: What of the spread would be gone if the place were known well.
        self.doubt = math.sqrt(max(square - chance, 0.0)) * late
        self.p95 = self.seconds + 1.645 * self.spread
        self.joules = joules
        self.wait = wait
        #: What it takes if what slowed the place down is over.
        self.best_case = self.seconds
        #: What it takes if it begins here once it is late, and that keeps its answer waiting.
        self.hedged = self.seconds
        self._names = names
        self._stages = stages

    @property
    def log_variance(self) -> float:
        """Of the log-normal with this mean and spread."""
        return math.log1p((self.spread / max(self.seconds, 1e-9)) ** 2)

    @property
    def middle(self) -> float:
        """As likely too long as too short."""
        return self.seconds * math.exp(-self.log_variance / 2)

    def hoped(self, sigmas: float) -> float:
        """What it may turn out to take once it is known better: so many deviations of its doubt below its middle.

        How much it varies from call to call is not counted: that stays, however often it is tried.
        """
        variance = math.log1p((self.doubt / max(self.seconds, 1e-9)) ** 2)
        return self.seconds * math.exp(-variance / 2 - sigmas * math.sqrt(variance))

    def stage(self, name: str) -> float:
        """The expected seconds of one stage."""
        return self._stages[self._names.index(name)].mean

    @property
    def terms(self) -> tuple[Term, ...]:
        """The stages one by one."""
        return tuple(Term(name, stage.mean, stage.spread) for name, stage in zip(self._names, self._stages, strict=True))


class Place:
    """What is known of one node, whatever the function."""

    __slots__ = ("_late_at", "_late_log", "down_rate", "queue", "round_trip", "slowdown", "speed", "up_rate")

    def __init__(self, speed: float = 1.0, round_trip: float = 2e-3, bytes_per_second: float = 12.5e6) -> None:
        self.speed = speed
        self.round_trip = Level(round_trip, 1.0, 2e-3)
        self.up_rate = Level(bytes_per_second, 1.5, 2e-3)
        self.down_rate = Level(bytes_per_second, 1.5, 2e-3)
        self.queue = Level(1e-4, 1.0, 1e-2)
        self.slowdown = Level(1.0, 0.01, 5e-3)
        self._late_log = 0.0
        self._late_at = 0.0

    def late(self, now: float) -> float:
        """How many times longer than predicted calls take that were given up before their stages were known."""
        if not self._late_log:
            return 1.0
        return math.exp(self._late_log * 0.5 ** ((now - self._late_at) / LATE_HALF_LIFE))

    def observe_late(self, ratio: float, now: float) -> None:
        """A call was given up after this many times its predicted time."""
        self._late_log = math.log(max(ratio * self.late(now), 1.0))
        self._late_at = now

    def observe_answer(self) -> None:
        """A call came back, so its stages say what there is to say."""
        self._late_log = 0.0

    def slowed(self, now: float) -> Guess:
        """How many times slower than usual the place is, as far as was measured lately."""
        return self.slowdown.guess(now)

    def observe_probe(self, bytes_per_second: float, now: float) -> None:
        """A small download said what the network gives; of the way up it says as much, with more doubt."""
        self.down_rate.observe(bytes_per_second, now, noise=PROBE_VARIANCE)
        self.up_rate.observe(bytes_per_second, now, noise=4 * PROBE_VARIANCE)

    def observe_transfer(self, up: tuple[int, float] | None, down: tuple[int, float] | None, now: float) -> None:
        """Bytes and seconds, of a call or of a probe."""
        for moved, rate in ((up, self.up_rate), (down, self.down_rate)):
            if moved and moved[0] >= RATE_BYTES_MIN and moved[1] > 0:
                rate.observe(moved[0] / moved[1], now)


@dataclass
class Work:
    """What is known of one function."""

    local: Curve = field(default_factory=lambda: Curve(0.0, 1.0, WORK_VARIANCE, 0.25, is_work=True))
    remote: dict[str, Curve] = field(default_factory=dict)
    #: How many times as fast as this machine the places of `remote` are said to be.
    speeds: dict[str, float] = field(default_factory=dict)
    encode: Curve = field(default_factory=lambda: Curve(math.log(5e-5), 0.3, 1.0, 0.1))
    decode: Curve = field(default_factory=lambda: Curve(math.log(5e-5), 0.3, 1.0, 0.1))
    #: Bytes on the wire by the bytes that were estimated; and of the result by the size, on the wire and as estimated here.
    bytes_up: Curve = field(default_factory=lambda: Curve(None, 1.0, 0.01, 0.01))
    bytes_down: Curve = field(default_factory=lambda: Curve(None, 1.0, 0.1, 0.1))
    result: Curve = field(default_factory=lambda: Curve(None, 1.0, 0.1, 0.1))

    #: How likely a call here cannot be stopped in the middle, for it is one call of a library.
    runs_out: float = 0.5
    #: Whether it ever ran here to its end; if not, calls since that was last tried, and before it is tried again.
    has_run_here: bool = False
    calls: int = 0
    gap: int = 4
    #: Whether nothing else of this program runs while it does here: one call of a library that keeps the interpreter. None
    #: until it was seen.
    holds: bool | None = None
    held: int = 0

    def run_here(self, size: float) -> Guess:
        if self.local.count:
            return _shared(self.local, self.remote.values(), size)
        for name, curve in self.remote.items():
            if curve.count:
                # Seen elsewhere only: the same shape, this machine's speed.
                guess = curve.guess(size)
                return Guess(guess.log + math.log(self.speeds.get(name, 1.0)), guess.variance + SPEED_VARIANCE)
        return Guess(math.log(WORK_SECONDS_PER_BYTE * max(size, 1.0)), WORK_VARIANCE)

    def run_there(self, name: str, place: Place, size: float, now: float) -> Guess:
        slowed = place.slowed(now)
        curve = self.remote.get(name)
        if curve is not None and curve.count:
            guess = _shared(curve, (self.local,), size)
            return Guess(guess.log + slowed.log, guess.variance + slowed.variance, guess.noise + slowed.noise)
        here = self.run_here(size)
        log = here.log - math.log(place.speed) + slowed.log
        return Guess(log, here.variance + SPEED_VARIANCE + slowed.variance, here.noise + slowed.noise)

    def bytes_back(self, size: float, bytes_up: float) -> Guess:
        """What the result takes on the wire: as answers did, else as what it was here, else as the arguments."""
        for curve in (self.bytes_down, self.result):
            if curve.count:
                return curve.guess(size)
        return Guess(math.log(max(bytes_up, 1.0)), 0.0)

    def run_usually(self, name: str, size: float) -> float:
        """The logarithm of the run time there when nothing slows it down."""
        curve = self.remote.get(name)
        return curve.guess(size).log if curve is not None and curve.count else math.inf

    def curve_of(self, name: str, place: Place, size: float) -> Curve:
        curve = self.remote.get(name)
        if curve is None:
            here = self.run_here(size)
            height, variance = here.log - math.log(place.speed), min(here.variance + SPEED_VARIANCE, WORK_VARIANCE)
            curve = Curve(height, 1.0, variance, 0.25, is_work=True)
            self.remote[name] = curve
        self.speeds[name] = place.speed
        return curve

    @property
    def is_new(self) -> bool:
        """Whether it was never seen to run anywhere."""
        return not self.local.count and not any(curve.count for curve in self.remote.values())


def _shared(curve: Curve, others: Iterable[Curve], size: float) -> Guess:
    """What a curve says, or where it knows little of this size, another place's curve moved to where this one was seen.

    A function's work grows alike everywhere; only how high the curve lies is each place's own.
    """
    own = curve.guess(size)
    if own.variance < SURE_VARIANCE:
        return own
    center = curve.typical
    height = curve.guess(center)
    for other in others:
        if other.count >= 2:
            there, below = other.guess(size), other.guess(center)
            variance = there.variance + below.variance + height.variance + SHAPE_VARIANCE
            if variance < own.variance:
                own = Guess(there.log + height.log - below.log, variance, own.noise)
    return own


@dataclass(slots=True)
class Question:
    """What is known of a call before it is decided where it runs."""

    function: str
    #: What the function's work grows with, and what its arguments take on the wire.
    size: float
    bytes_up: float
    #: Where it may run, beside here.
    places: Sequence[str]
    now: float
    #: Seconds from now.
    deadline: float | None = None
    may_run_here: bool = True
    #: Seconds that a place needs before.
    waits: Mapping[str, float] = field(default_factory=dict)
    #: Whether it may run at two places at once.
    may_race: bool = False
    #: Whether something still runs here that an earlier call has left.
    is_disturbed: bool = False


def predict_local(work: Work, size: float, energy: Energy, late: float = 1.0) -> Prediction:
    return Prediction(LOCAL, _LOCAL_NAMES, (work.run_here(size),), energy, late=late)


def predict_remote(work: Work, name: str, place: Place, question: Question, energy: Energy) -> Prediction:
    size, bytes_up, now, wait = question.size, question.bytes_up, question.now, question.waits.get(name, 0.0)
    up_log = math.log(max(bytes_up, 1.0)) if not work.bytes_up.count else work.bytes_up.guess(bytes_up).log
    back = work.bytes_back(size, bytes_up)
    up_rate, down_rate = place.up_rate.guess(now), place.down_rate.guess(now)
    run = work.run_there(name, place, size, now)
    stages = (
        work.encode.guess(math.exp(up_log)),
        Guess(up_log - up_rate.log, up_rate.variance, up_rate.noise),
        place.round_trip.guess(now),
        place.queue.guess(now),
        run,
        Guess(back.log - down_rate.log, back.variance + down_rate.variance, down_rate.noise),
        work.decode.guess(back.middle),
    )
    late = place.late(now)
    prediction = Prediction(name, _REMOTE_NAMES, stages, energy, wait=wait, late=late)
    at_best = math.exp(min(run.log, work.run_usually(name, size), work.run_here(size).log - math.log(place.speed)))
    prediction.best_case = (prediction.seconds - wait) / late - run.mean + at_best + wait
    return prediction

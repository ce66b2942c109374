"""What a call will take at a place: its stages estimated one by one and added up.

    local    run
    remote   encode, up, round trip, queue, run, down, decode

A function's run time follows the size of its arguments by a power; a place is faster or slower than this machine by a
factor, known roughly from both benchmarks before the first call, and may be slowed down for a while by other work.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from .estimate import Curve, Guess, Level

LOCAL: Final = "local"

#: Before anything is known of a function: a nanosecond of work for each byte, give or take a factor of twenty.
WORK_SECONDS_PER_BYTE: Final = 1e-9
WORK_VARIANCE: Final = 9.0
#: Benchmarks say a place's speed on one kind of work only.
SPEED_VARIANCE: Final = 0.12
#: A slowdown is forgotten by half in this many seconds.
SLOWDOWN_HALF_LIFE: Final = 20.0
#: Bytes below which a transfer says little about the rate.
RATE_BYTES_MIN: Final = 16_384


@dataclass(frozen=True)
class Stages:
    """What one remote call took, in seconds, and how many bytes it sent and received."""

    encode: float
    up: float
    round_trip: float
    queue: float
    run: float
    down: float
    decode: float
    bytes_up: int
    bytes_down: int


@dataclass(frozen=True)
class Energy:
    """What this machine draws, in watts, while it computes, sends and waits. Zero weight: only time counts."""

    compute: float = 5.0
    radio: float = 1.5
    wait: float = 0.5
    #: Seconds that a joule is worth.
    weight: float = 0.0


@dataclass(frozen=True)
class Term:
    """One stage of a prediction."""

    name: str
    seconds: float
    spread: float


@dataclass(frozen=True)
class Prediction:
    """What a call is expected to take at a place."""

    place: str
    terms: tuple[Term, ...]
    joules: float

    @property
    def seconds(self) -> float:
        return sum(term.seconds for term in self.terms)

    @property
    def spread(self) -> float:
        """Standard deviation; stages are taken as independent."""
        return math.sqrt(sum(term.spread**2 for term in self.terms))

    @property
    def p95(self) -> float:
        return self.seconds + 1.645 * self.spread


class Place:
    """What is known of one node, whatever the function."""

    __slots__ = ("down_rate", "queue", "round_trip", "slowdown", "speed", "up_rate")

    def __init__(self, speed: float = 1.0, round_trip: float = 2e-3, bytes_per_second: float = 12.5e6) -> None:
        self.speed = speed
        self.round_trip = Level(round_trip, 1.0, 2e-3)
        self.up_rate = Level(bytes_per_second, 1.5, 2e-3)
        self.down_rate = Level(bytes_per_second, 1.5, 2e-3)
        self.queue = Level(1e-4, 1.0, 1e-2)
        self.slowdown = Level(1.0, 0.01, 5e-3)

    def slowed(self, now: float) -> Guess:
        """How many times slower than usual the place is: measured lately, and drifting back to one."""
        guess = self.slowdown.guess(now)
        kept = 0.5 ** (self.slowdown.age(now) / SLOWDOWN_HALF_LIFE) if self.slowdown.count else 0.0
        return Guess(guess.log * kept, guess.variance)

    def observe_transfer(self, up: tuple[int, float] | None, down: tuple[int, float] | None, now: float) -> None:
        """Bytes and seconds, of a call or of a probe."""
        for moved, rate in ((up, self.up_rate), (down, self.down_rate)):
            if moved and moved[0] >= RATE_BYTES_MIN and moved[1] > 0:
                rate.observe(moved[0] / moved[1], now)


@dataclass
class Work:
    """What is known of one function."""

    local: Curve = field(default_factory=lambda: Curve(0.0, 1.0, WORK_VARIANCE, 0.25))
    remote: dict[str, Curve] = field(default_factory=dict)
    encode: Curve = field(default_factory=lambda: Curve(math.log(5e-5), 0.3, 1.0, 0.1))
    decode: Curve = field(default_factory=lambda: Curve(math.log(5e-5), 0.3, 1.0, 0.1))
    bytes_up: Curve = field(default_factory=lambda: Curve(0.0, 1.0, 0.01, 0.01))
    bytes_down: Curve = field(default_factory=lambda: Curve(0.0, 1.0, 1.0, 0.1))

    def run_here(self, size: float) -> Guess:
        if self.local.count:
            return self.local.guess(size)
        for curve in self.remote.values():
            # Seen elsewhere only: the same shape, this machine's speed.
            guess = curve.guess(size)
            return Guess(guess.log, guess.variance + SPEED_VARIANCE)
        return Guess(math.log(WORK_SECONDS_PER_BYTE * max(size, 1.0)), WORK_VARIANCE)

    def run_there(self, name: str, place: Place, size: float, now: float) -> Guess:
        slowed = place.slowed(now)
        curve = self.remote.get(name)
        if curve is not None and curve.count:
            guess = curve.guess(size)
            return Guess(guess.log + slowed.log, guess.variance + slowed.variance)
        here = self.run_here(size)
        log = here.log - math.log(place.speed) + slowed.log
        return Guess(log, here.variance + SPEED_VARIANCE + slowed.variance)

    def curve_of(self, name: str, place: Place, size: float) -> Curve:
        curve = self.remote.get(name)
        if curve is None:
            here = self.run_here(size)
            curve = Curve(here.log - math.log(place.speed), 1.0, min(here.variance + SPEED_VARIANCE, WORK_VARIANCE), 0.25)
            self.remote[name] = curve
        return curve


def predict_local(work: Work, size: float, energy: Energy) -> Prediction:
    run = work.run_here(size)
    return Prediction(LOCAL, (Term("run", run.mean, run.spread),), run.mean * energy.compute)


def predict_remote(work: Work, name: str, place: Place, size: float, bytes_up: float, now: float, energy: Energy) -> Prediction:
    up_bytes = bytes_up if not work.bytes_up.count else work.bytes_up.guess(size).middle
    down_bytes = work.bytes_down.guess(size).middle if work.bytes_down.count else bytes_up
    encode, decode = work.encode.guess(up_bytes), work.decode.guess(down_bytes)
    up_rate, down_rate = place.up_rate.guess(now), place.down_rate.guess(now)
    up = Guess(math.log(max(up_bytes, 1.0)) - up_rate.log, up_rate.variance)
    down = Guess(math.log(max(down_bytes, 1.0)) - down_rate.log, down_rate.variance)
    trip, queue = place.round_trip.guess(now), place.queue.guess(now)
    run = work.run_there(name, place, size, now)
    stages = (
        ("encode", encode), ("up", up), ("round trip", trip), ("queue", queue), ("run", run), ("down", down),
        ("decode", decode),
    )  # fmt: skip
    terms = tuple(Term(label, guess.mean, guess.spread) for label, guess in stages)
    computing = encode.mean + decode.mean
    sending = up.mean + down.mean
    waiting = trip.mean + queue.mean + run.mean
    joules = computing * energy.compute + sending * energy.radio + waiting * energy.wait
    return Prediction(name, terms, joules)

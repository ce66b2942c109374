"""Records of calls timed at both places, in a still world and in one that changes; then the same live, by `@offload`."""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

import work
from lighterage.decide.client import Client
from lighterage.decide.model import LOCAL, Stages
from lighterage.decide.replay import Point, Record
from machines import Machines

#: Functions and the sizes among which the calls choose.
MIX: Final[dict[str, tuple[int, ...]]] = {
    "svd": tuple(range(100, 501, 50)),
    "multiplication": (100, 200, 300, 400),
    "inversion": (100, 200, 300, 400),
    "logarithm": (100, 200, 300, 400),
    "queens": (6, 7, 8, 9),
    "mandelbrot": (20, 40, 80, 120),
    "hashing": (10, 100, 500),
}
#: Other mixes: work that grows with a number, on texts, and on matrices.
NUMBERS: Final[dict[str, tuple[int, ...]]] = {
    "queens": (6, 7, 8, 9),
    "mandelbrot": (20, 40, 80, 120),
    "primes": (1_000, 3_000, 10_000, 30_000),
    "hashing": (10, 100, 500),
}
TEXTS: Final[dict[str, tuple[int, ...]]] = {
    "packing": (10, 50, 200, 800),
    "parsing": (10, 50, 200, 800),
    "hashing": (10, 100, 500),
    "primes": (1_000, 3_000, 10_000, 30_000),
}
MATRICES: Final[dict[str, tuple[int, ...]]] = {
    "svd": (100, 200, 300, 400),
    "multiplication": (100, 200, 300, 400),
    "inversion": (100, 200, 300, 400),
    "spectrum": (100, 200, 300, 400),
}
#: Sizes at which each takes a tenth of a second and longer: what ends before it is told to stop says nothing.
LONG: Final = {
    "svd": 500,
    "multiplication": 400,
    "inversion": 500,
    "logarithm": 2_000,
    "queens": 10,
    "mandelbrot": 80,
    "hashing": 1_000,
    "packing": 800,
    "parsing": 4_000,
    "primes": 30_000,
    "spectrum": 1_000,
}
_STAGES: Final = {field.name for field in fields(Stages)}


@dataclass(frozen=True)
class Phase:
    """Calls under one condition."""

    calls: int
    rate: int
    is_loaded: bool = False


@dataclass(frozen=True)
class Scenario:
    name: str
    phases: tuple[Phase, ...]
    mix: Mapping[str, tuple[int, ...]] = field(default_factory=lambda: MIX)
    #: The function that half of the calls are; none where all are as frequent.
    usual: str | None = "svd"


def scenarios(calls: int) -> list[Scenario]:
    """Still worlds of three rates; a step of the rate, down and up; a step of the node's load, up and down."""
    still = [Scenario(f"stationary, {rate} Mbit/s", (Phase(calls, rate),)) for rate in (100, 40, 10)]
    third = calls // 2
    return [
        *still,
        Scenario("bandwidth steps", (Phase(third, 100), Phase(third, 10), Phase(third, 100))),
        Scenario("load steps", (Phase(third, 100), Phase(third, 100, is_loaded=True), Phase(third, 100))),
    ]


def calls_of(scenario: Scenario, seed: int) -> list[tuple[Phase, bool, str, int]]:
    """The calls of a scenario in order: phase, whether it begins here, function and size. The same for record and live."""
    order = random.Random(seed)
    found = []
    for number, phase in enumerate(scenario.phases):
        for at in range(phase.calls):
            # Half of the calls are the one function that pays here and there; the others make up the rest.
            is_usual = scenario.usual is not None and order.random() < 0.5
            function = scenario.usual if is_usual else order.choice(sorted(scenario.mix))
            found.append((phase, number > 0 and at == 0, function, order.choice(scenario.mix[function])))
    return found


class _World:
    """The condition the testbed is in."""

    def __init__(self, machines: Machines) -> None:
        self._machines, self._rate, self._is_loaded = machines, 0, False

    def enter(self, phase: Phase) -> None:
        if phase.rate != self._rate:
            self._machines.testbed.rate(phase.rate)
            self._rate = phase.rate
        if phase.is_loaded != self._is_loaded:
            self._machines.load(phase.is_loaded)
            self._is_loaded = phase.is_loaded

    def leave(self) -> None:
        if self._is_loaded:
            self._machines.load(False)


def record(machines: Machines, scenario: Scenario, seed: int, source: str) -> Record:
    """Times every call of the scenario at both places, one after the other."""
    world, points = _World(machines), []
    world.enter(scenario.phases[0])
    about = machines.ask(do="meet")
    round_trip = about["round_trip"]
    halves = machines.ask(do="halves", functions={name: LONG[name] for name in scenario.mix})
    calls = calls_of(scenario, seed)
    try:
        for at, (phase, is_step, function, size) in enumerate(calls):
            world.enter(phase)
            local = machines.ask(do="local", function=function, n=size, times=1)["seconds"][0]
            there = machines.ask(do="remote", function=function, n=size, times=1, round_trip=round_trip)
            stages = Stages(**{key: value for key, value in there["stages"][0].items() if key in _STAGES})
            probe = machines.ask(do="probe")["bytes_per_second"]
            # Processor time, at the client's pace.
            client = there["computed"][0] / machines.testbed.share
            size = _grows_with(function, size)
            points.append(Point(function, size, stages.bytes_up, local, stages, probe, is_step, client))
            _progress(f"record, {scenario.name}", at + 1, len(calls))
    finally:
        world.leave()
    return Record(source, points, about["speed"], round_trip, **halves)


def taken_up(path: Path, scenario: Scenario, source: str) -> Record | None:
    """The record that an earlier run has made of the same calls in the same circumstances, if there is one."""
    try:
        found = Record.load(path)
    except (OSError, ValueError, TypeError, KeyError):
        # None yet; or one of an older form, which says less.
        return None
    return found if found.source == source and len(found.points) == sum(phase.calls for phase in scenario.phases) else None


def live(machines: Machines, scenario: Scenario, seed: int) -> list[dict[str, Any]]:
    """The same calls, decided by `@offload`: seconds and place of each. The functions are on the node, as in the record."""
    world, answers = _World(machines), []
    for function in scenario.mix:
        machines.ask(do="prepare", function=function)
    calls = calls_of(scenario, seed)
    try:
        for at, (phase, _, function, size) in enumerate(calls):
            world.enter(phase)
            answers.append(machines.ask(do="decided", function=function, n=size))
            _progress(f"live, {scenario.name}", at + 1, len(calls))
    finally:
        world.leave()
    return answers


@dataclass(frozen=True)
class Confirmed:
    """How live decisions did, judged by the record of the same calls."""

    accuracy: float
    #: Seconds of all calls over those of the record's better places, less one.
    regret: float
    remote_part: float
    #: Of all calls, those that ran at both places.
    doubled_part: float
    #: What these took, over what the replay's model of a race says; the middle one. None where there was none.
    race_ratio: float | None


def confirm(recorded: Record, answers: list[dict[str, Any]]) -> Confirmed:
    pairs = list(zip(recorded.points, answers, strict=True))
    clear = [(point, answer) for point, answer in pairs if point.is_clear]
    right = sum((answer["place"] == LOCAL) == (point.local <= point.remote) for point, answer in clear)
    ratios = [
        answer["seconds"] / Client(recorded).run(point, answer["chosen"], answer["after"]).seconds
        for point, answer in pairs
        if answer["is_doubled"] and answer["after"] is not None
    ]
    return Confirmed(
        right / len(clear) if clear else 1.0,
        sum(answer["seconds"] for answer in answers) / sum(point.best for point in recorded.points) - 1,
        sum(answer["place"] != LOCAL for answer in answers) / len(answers),
        sum(answer["is_doubled"] for answer in answers) / len(answers),
        statistics.median(ratios) if ratios else None,
    )


def _grows_with(function: str, size: int) -> float:
    """What `@offload` would take the call's size to be."""
    from lighterage.call.measure import sizes

    return sizes(work.arguments(function, size))[0]


def _progress(what: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{what}: {done}/{total}   ", end="\n" if done == total else "", file=sys.stderr)
    elif done == total:
        print(f"{what}: {total} calls", file=sys.stderr)

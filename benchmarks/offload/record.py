"""Records of calls timed at both places, in a still world and in one that changes; then the same live, by `@offload`."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import work
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
            function = "svd" if order.random() < 0.5 else order.choice(sorted(MIX))
            found.append((phase, number > 0 and at == 0, function, order.choice(MIX[function])))
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
    calls = calls_of(scenario, seed)
    try:
        for at, (phase, is_step, function, size) in enumerate(calls):
            world.enter(phase)
            local = machines.ask(do="local", function=function, n=size, times=1)["seconds"][0]
            there = machines.ask(do="remote", function=function, n=size, times=1, round_trip=round_trip)
            stages = Stages(**{key: value for key, value in there["stages"][0].items() if key in _STAGES})
            probe = machines.ask(do="probe")["bytes_per_second"]
            points.append(Point(function, _grows_with(function, size), stages.bytes_up, local, stages, probe, is_step))
            _progress(f"record, {scenario.name}", at + 1, len(calls))
    finally:
        world.leave()
    return Record(source, points, about["speed"], round_trip)


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
    for function in MIX:
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


def confirm(recorded: Record, answers: list[dict[str, Any]]) -> Confirmed:
    clear = [(point, answer) for point, answer in zip(recorded.points, answers, strict=True) if point.is_clear]
    right = sum((answer["place"] == LOCAL) == (point.local <= point.remote) for point, answer in clear)
    return Confirmed(
        right / len(clear) if clear else 1.0,
        sum(answer["seconds"] for answer in answers) / sum(point.best for point in recorded.points) - 1,
        sum(answer["place"] != LOCAL for answer in answers) / len(answers),
    )


def _grows_with(function: str, size: int) -> float:
    """What `@offload` would take the call's size to be."""
    from lighterage.measure import sizes

    return sizes(work.arguments(function, size))[0]


def _progress(what: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{what}: {done}/{total}   ", end="\n" if done == total else "", file=sys.stderr)
    elif done == total:
        print(f"{what}: {total} calls", file=sys.stderr)

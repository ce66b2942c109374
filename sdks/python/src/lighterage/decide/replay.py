"""Plays a record of calls, whose every place was timed, to any policy, and says how well it chose.

A record has for each point what the call took here and its stages on a node. A policy is shown what it could know before
the call and then only the times of the place it chose; so one record compares policies exactly, and again tomorrow.

    python -m lighterage.decide.replay RECORD.json…

`synthetic` makes records from a physical model with noise; `./bench offload` those of real machines.
"""

from __future__ import annotations

import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Protocol

from .client import NODE, Client, Ran
from .engine import Decision, Engine, alone
from .model import LOCAL, Question, Stages

#: Two places whose times differ by less than this part are equally right.
BAND: Final = 0.1
#: Right choices in a row after which a step is overcome.
SETTLED: Final = 5
#: Seconds of the better place from which on a call is a long one: below, a thread's turn takes as long.
LONG: Final = 0.02
#: Calls of a function that nobody can know anything about.
LEARNING: Final = 3
#: Other orders of a record's calls that the engine is played in the table.
ORDERS: Final = 12
#: Seconds between two probes of a node, as the runtime makes them.
PROBE_SECONDS: Final = 10.0


@dataclass(frozen=True)
class Point:
    """One call: what is known before it, and what it takes here and there."""

    function: str
    size: float
    bytes_up: int
    local: float
    stages: Stages
    #: Bytes a second that a probe in the background would measure now; none where none was recorded.
    probe: float | None = None
    #: Whether the world changes here.
    is_step: bool = False
    #: Seconds of its processor that the client needs for the call there, to write, send, receive and read.
    client: float | None = None

    @property
    def client_seconds(self) -> float:
        return self.stages.encode + self.stages.decode if self.client is None else self.client

    @property
    def remote(self) -> float:
        return self.stages.seconds

    @property
    def best(self) -> float:
        return min(self.local, self.remote)

    @property
    def is_clear(self) -> bool:
        """Whether one place is better beyond the band."""
        return abs(math.log(self.local / self.remote)) > math.log1p(BAND)


@dataclass
class Record:
    """Points in order, and where they come from: `synthetic` or a machine's name."""

    source: str
    points: list[Point]
    #: What the node's benchmark says: times this machine's speed; and the round trip seen when connecting.
    speed: float = 1.0
    round_trip: float = 2e-3
    #: Seconds between two calls.
    pause: float = 0.05
    #: Functions that the interpreter can stop in the middle, for they compute in Python and not in one call of a library.
    stops: list[str] = field(default_factory=list)
    #: Functions that keep the interpreter while they run: the other half has no turn until they are done.
    holds: list[str] = field(default_factory=list)
    #: Seconds that the client needs to run a call in another thread, and that a call to the node waits for its turns beside
    #: one that computes in Python.
    helper: float = 0.0
    turns: float = 0.0

    def save(self, path: Path) -> None:
        """As JSON, times with four digits."""
        rows = [asdict(point) for point in self.points]
        document = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "points"}
        lines = ",\n".join(json.dumps(_rounded(row), separators=(",", ":")) for row in rows)
        path.write_text(json.dumps(document)[:-1] + ', "points": [\n' + lines + "\n]}\n")

    @classmethod
    def load(cls, path: Path) -> Record:
        """Raises KeyError or TypeError where the file is no record."""
        document = json.loads(path.read_text())
        points = [Point(**{**row, "stages": Stages(**{"round_trip": None, **row["stages"]})}) for row in document.pop("points")]
        return cls(points=points, **document)


class Chooser(Protocol):
    """A policy, as it is played to."""

    def choose(self, point: Point, now: float, is_disturbed: bool = False) -> tuple[str, float | None]:
        """The place, and after how many seconds the other one runs the call as well. Sees sizes only.

        `is_disturbed` says that something an earlier call has left is still running here.
        """

    def learn(self, point: Point, ran: Ran, now: float) -> None:
        """How the call went. Sees nothing of a place where it did not run."""


@dataclass
class Played:
    """How a policy did."""

    policy: str
    seconds: float = 0.0
    oracle_seconds: float = 0.0
    clear: int = 0
    right: int = 0
    #: Worst time over best time of a single call, hedging included; the first calls of a function are not counted.
    penalty_worst: float = 1.0
    #: The same of calls that take at least 20 ms at the better place.
    penalty_worst_of_20_ms: float = 1.0
    #: For each step: calls until the policy chose right again, for good.
    recovery_calls: list[int] = field(default_factory=list)
    decide_seconds: float = 0.0
    calls: int = 0
    places: list[str] = field(default_factory=list)
    #: Calls that ran at both places, in planned races or because they were late.
    doubled: int = 0
    #: Processor time of the client for halves whose result was not used, and calls the node ran for nothing.
    extra_seconds: float = 0.0
    node_extra: int = 0

    @property
    def regret(self) -> float:
        """Time lost, as a part of the oracle's."""
        return self.seconds / self.oracle_seconds - 1

    @property
    def accuracy(self) -> float:
        """Right choices where one place is clearly better; of two places the one whose result was used was chosen."""
        return self.right / self.clear if self.clear else 1.0

    @property
    def doubled_part(self) -> float:
        """Of all calls, those that ran at both places."""
        return self.doubled / self.calls if self.calls else 0.0

    @property
    def extra_part(self) -> float:
        """What the client computed in vain, as a part of all calls' time."""
        return self.extra_seconds / self.seconds if self.seconds else 0.0


def play(record: Record, name: str, chooser: Chooser, first: int = 0) -> Played:
    """Plays the record to a policy; points before `first` are played and not judged."""
    played = Played(name)
    client = Client(record)
    now = 0.0
    seen: dict[str, int] = {}
    wrong: list[bool] = []
    steps: list[int] = []
    for at, point in enumerate(record.points):
        began = time.perf_counter()
        place, after = chooser.choose(point, now, client.is_disturbed)
        decided = time.perf_counter() - began
        ran = client.run(point, place, after)
        client.pause(record.pause)
        now += ran.seconds + record.pause
        is_right = (point.local if ran.place == LOCAL else point.remote) <= point.best * (1 + BAND)
        chooser.learn(point, ran, now)
        if point.is_step:
            steps.append(at)
        wrong.append(point.is_clear and not is_right)
        if at < first:
            continue
        played.calls += 1
        played.decide_seconds += decided
        played.seconds += ran.seconds
        played.oracle_seconds += point.best
        played.clear += point.is_clear
        played.right += point.is_clear and is_right
        played.doubled += ran.is_doubled
        played.extra_seconds += ran.extra
        played.node_extra += ran.is_node_extra
        seen[point.function] = seen.get(point.function, 0) + 1
        if seen[point.function] > LEARNING:
            penalty = ran.seconds / point.best
            played.penalty_worst = max(played.penalty_worst, penalty)
            if point.best >= LONG:
                played.penalty_worst_of_20_ms = max(played.penalty_worst_of_20_ms, penalty)
        played.places.append(ran.place)
    played.recovery_calls = [_recovery(wrong[step:]) for step in steps]
    return played


def reordered(record: Record, seed: int) -> Record:
    """The same calls in another order within each phase: what went well by chance of the order does not go well again."""
    rng, phases = random.Random(seed), list[list[Point]]()
    for point in record.points:
        if point.is_step or not phases:
            phases.append([])
        phases[-1].append(replace(point, is_step=False))
    for phase in phases:
        rng.shuffle(phase)
    for phase in phases[1:]:
        phase[0] = replace(phase[0], is_step=True)
    return replace(record, points=[point for phase in phases for point in phase])


def play_orders(record: Record, name: str, make: Callable[[Record], Chooser], orders: int = ORDERS) -> Played:
    """All of so many other orders together, each played to a new policy."""
    every = [play(one, name, make(one)) for one in (reordered(record, seed) for seed in range(orders))]
    worst = ("penalty_worst", "penalty_worst_of_20_ms")
    both = Played(name, **{of: max(getattr(one, of) for one in every) for of in worst})
    for one in every:
        for of in fields(Played):
            if of.name not in ("policy", *worst):
                setattr(both, of.name, getattr(both, of.name) + getattr(one, of.name))
    return both


def _recovery(wrong: Sequence[bool]) -> int:
    """Wrong choices until `SETTLED` right ones follow each other."""
    in_a_row = count = 0
    for is_wrong in wrong:
        in_a_row = 0 if is_wrong else in_a_row + 1
        count += is_wrong
        if in_a_row == SETTLED:
            break
    return count


class EngineChooser:
    """The engine of this package, as `@offload` drives it."""

    def __init__(self, record: Record, races: bool = True, engine: Engine | None = None) -> None:
        self.engine = engine or Engine()
        self.engine.place(NODE, record.speed, record.round_trip)
        self._races = races
        self._helper = record.helper
        self._holds = record.holds
        self._decision: Decision | None = None
        self._probed_at = -PROBE_SECONDS

    def choose(self, point: Point, now: float, is_disturbed: bool = False) -> tuple[str, float | None]:
        if point.probe is not None and now - self._probed_at >= PROBE_SECONDS:
            self._probed_at = now
            self.engine.place(NODE).observe_probe(point.probe, now)
        decision = self._decision = self.engine.decide(
            Question(point.function, point.size, point.bytes_up, (NODE,), now, may_race=self._races, is_disturbed=is_disturbed)
        )
        return decision.place, None if decision.rival is None else decision.rival_after

    def learn(self, point: Point, ran: Ran, now: float) -> None:
        engine, decision, stages = self.engine, self._decision, point.stages
        assert decision is not None
        if ran.place == LOCAL:
            assert ran.here is not None
            engine.observe_local(point.function, point.size, ran.here, decision, ran.is_disturbed)
            engine.observe_result(point.function, point.size, stages.bytes_down)
        else:
            assert ran.there is not None
            engine.observe_remote(point.function, NODE, point.size, stages, now, decision=decision, is_disturbed=ran.is_doubled)
        if decision.rival is not None:
            engine.helper_seconds = self._helper
            if decision.place == LOCAL and point.local > decision.rival_after:
                engine.observe_held(point.function, point.function in self._holds)
        if not ran.is_doubled:
            return
        assert ran.here is not None and ran.there is not None
        engine.observe_raced(point.function, decision, ran.place, ran.there, ran.extra)
        if ran.place != LOCAL:
            engine.observe_stopped(point.function, ran.is_stopped)
            if not ran.is_disturbed:
                engine.observe_local_longer(point.function, point.size, ran.here)
            return
        # How far the upload had come, or how long the answer has not: that is all there is to know of the other one.
        left = ran.there - stages.encode
        if left < stages.up and stages.up:
            sent = round(point.bytes_up * max(left, 1e-6) / stages.up)
            engine.place(NODE).observe_transfer((sent, left), None, now)
        else:
            there = next(prediction for prediction in decision.predictions if prediction.place != LOCAL)
            engine.observe_remote_longer(
                point.function, point.size, there, alone(ran.there, ran.here, engine.turns_seconds), now
            )


class Always:
    """Always the same place."""

    def __init__(self, place: str) -> None:
        self._place = place

    def choose(self, point: Point, now: float, is_disturbed: bool = False) -> tuple[str, float | None]:
        return self._place, None

    def learn(self, point: Point, ran: Ran, now: float) -> None:
        return


class Inequality:
    """The classical rule, fixed once: remote where `work / speed + bytes / rate + round trip < work`.

    Work and rate are taken from the first calls of each function, timed at both places.
    """

    CALIBRATED: Final = 3

    def __init__(self, record: Record) -> None:
        self._exponents: dict[str, tuple[float, float]] = {}
        by_function: dict[str, list[Point]] = {}
        for point in record.points:
            by_function.setdefault(point.function, []).append(point)
        self._speed, self._round_trip = record.speed, record.round_trip
        rates = []
        for function, points in by_function.items():
            known = points[: self.CALIBRATED]
            self._exponents[function] = _fit([(math.log(point.size), math.log(point.local)) for point in known])
            rates += [point.bytes_up / point.stages.up for point in known if point.stages.up > 0]
        self._rate = sum(rates) / len(rates) if rates else 12.5e6

    def choose(self, point: Point, now: float, is_disturbed: bool = False) -> tuple[str, float | None]:
        height, slope = self._exponents[point.function]
        here = math.exp(height + slope * math.log(point.size))
        there = here / self._speed + 2 * point.bytes_up / self._rate + self._round_trip
        return (NODE if there < here else LOCAL), None

    def learn(self, point: Point, ran: Ran, now: float) -> None:
        return


class Ewma:
    """The lower of two moving averages, by function and size class; each place is tried once."""

    WEIGHT: Final = 0.3

    def __init__(self) -> None:
        self._means: dict[tuple[str, int, str], float] = {}

    def choose(self, point: Point, now: float, is_disturbed: bool = False) -> tuple[str, float | None]:
        return min((LOCAL, NODE), key=lambda place: self._means.get(self._key(point, place), 0.0)), None

    def learn(self, point: Point, ran: Ran, now: float) -> None:
        key, took = self._key(point, ran.place), ran.seconds
        mean = self._means.get(key)
        self._means[key] = took if mean is None else mean + self.WEIGHT * (took - mean)

    def _key(self, point: Point, place: str) -> tuple[str, int, str]:
        return point.function, round(2 * math.log2(point.size)), place


class LinUcb:
    """LinUCB (Li et al., 2010) with an arm for each place and function, on the logarithm of the time."""

    ALPHA: Final = 0.5

    def __init__(self) -> None:
        self._arms: dict[tuple[str, str], tuple[list[list[float]], list[float]]] = {}

    def choose(self, point: Point, now: float, is_disturbed: bool = False) -> tuple[str, float | None]:
        return min((LOCAL, NODE), key=lambda place: self._bound(point, place)), None

    def learn(self, point: Point, ran: Ran, now: float) -> None:
        matrix, vector = self._arm(point, ran.place)
        x = self._features(point)
        took = math.log(ran.seconds)
        for row in range(3):
            vector[row] += took * x[row]
            for column in range(3):
                matrix[row][column] += x[row] * x[column]

    def _bound(self, point: Point, place: str) -> float:
        matrix, vector = self._arm(point, place)
        x = self._features(point)
        weights, sure = _solve(matrix, vector), _solve(matrix, x)
        return _dot(weights, x) - self.ALPHA * math.sqrt(max(_dot(x, sure), 0.0))

    def _features(self, point: Point) -> list[float]:
        log = math.log(point.size) - 14.0
        return [1.0, log, log * log]

    def _arm(self, point: Point, place: str) -> tuple[list[list[float]], list[float]]:
        made = ([[1.0 if row == column else 0.0 for column in range(3)] for row in range(3)], [0.0] * 3)
        return self._arms.setdefault((point.function, place), made)


class Oracle:
    """Knows both times."""

    def choose(self, point: Point, now: float, is_disturbed: bool = False) -> tuple[str, float | None]:
        return (LOCAL if point.local <= point.remote else NODE), None

    def learn(self, point: Point, ran: Ran, now: float) -> None:
        return


POLICIES: Final[dict[str, Callable[[Record], Chooser]]] = {
    "lighterage": EngineChooser,
    "lighterage, one place": lambda record: EngineChooser(record, races=False),
    "always local": lambda record: Always(LOCAL),
    "always remote": lambda record: Always(NODE),
    "static inequality": Inequality,
    "EWMA, greedy": lambda record: Ewma(),
    "LinUCB": lambda record: LinUcb(),
    "oracle": lambda record: Oracle(),
}


def synthetic(
    seed: int,
    rates: Sequence[float],
    calls: int = 300,
    *,
    loads: Sequence[float] = (1.0,),
    faster: float = 8.0,
    noise: float = 0.05,
    slower: float = 8.0,
) -> Record:
    """A record of a physical model: matrix work of known cost on a device and a node, over a network of known rate.

    `rates` are bits a second, `loads` factors on the node's time; each of them holds for its share of the calls, and where
    one changes is a step. The node is `faster` than the device, which is `slower` than this project's development machine.
    Every time varies by `noise`, and one in fifty is up to 1.8 times as long.
    """
    rng = random.Random(seed)
    phases = max(len(rates), len(loads))
    points = []

    def vary(late: bool = False) -> float:
        factor = math.exp(rng.gauss(0, noise))
        return factor * rng.uniform(1.2, 1.8) if late and rng.random() < 0.02 else factor

    work = {"invert": 1.1e-9, "multiply": 0.9e-9, "log": 6e-8}
    for at in range(calls):
        phase = at * phases // calls
        rate, load = rates[min(phase, len(rates) - 1)] / 8, loads[min(phase, len(loads) - 1)]
        function = rng.choice(sorted(work))
        n = rng.randrange(400, 1_201, 50)
        bytes_up = n * n * 8 * (2 if function == "multiply" else 1) + 256
        bytes_down = n * n * 8 + 256
        seconds = slower * work[function] * (n * n if function == "log" else n**3)
        stages = Stages(
            encode=(2e-4 + bytes_up / 4e9) * vary(),
            up=bytes_up / rate * vary(),
            round_trip=1e-3 * vary(True),
            queue=2e-4 * load * vary(),
            run=seconds / faster * load * vary(True),
            down=bytes_down / rate * vary(),
            decode=(2e-4 + bytes_down / 4e9) * vary(),
            bytes_up=bytes_up,
            bytes_down=bytes_down,
        )
        is_step = at > 0 and phase != (at - 1) * phases // calls
        points.append(Point(function, float(bytes_up), bytes_up, seconds * vary(True), stages, rate * vary(), is_step))
    return Record("synthetic", points, faster * math.exp(rng.gauss(0, 0.2)), 1e-3)


def _fit(pairs: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Height and slope of a line by least squares; the slope is one where there is a single place."""
    pairs = list(pairs)
    x = sum(pair[0] for pair in pairs) / len(pairs)
    y = sum(pair[1] for pair in pairs) / len(pairs)
    spread = sum((pair[0] - x) ** 2 for pair in pairs)
    slope = sum((pair[0] - x) * (pair[1] - y) for pair in pairs) / spread if spread > 1e-9 else 1.0
    return y - slope * x, slope


def _dot(left: Sequence[float], right: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(left, right, strict=True))


def _solve(matrix: list[list[float]], vector: Sequence[float]) -> list[float]:
    """Gauss, for a positive definite matrix."""
    count = len(vector)
    rows = [[*matrix[row], vector[row]] for row in range(count)]
    for at in range(count):
        for row in range(at + 1, count):
            factor = rows[row][at] / rows[at][at]
            rows[row] = [a - factor * b for a, b in zip(rows[row], rows[at], strict=True)]
    found = [0.0] * count
    for at in reversed(range(count)):
        found[at] = (rows[at][count] - _dot(rows[at][at + 1 : count], found[at + 1 :])) / rows[at][at]
    return found


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items() if inner is not None and inner is not False}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def table(record: Record) -> str:
    """How every policy does on a record."""
    lines = [
        f"{'policy':24} {'regret':>8} {'accuracy':>9} {'worst':>7} {'recovery':>9} {'decide':>9} {'doubled':>8} {'extra':>6}"
    ]
    every = [play(record, name, make(record)) for name, make in POLICIES.items()]
    every.insert(1, play_orders(record, f"lighterage, {ORDERS} orders", EngineChooser))
    for played in every:
        recovery = ",".join(map(str, played.recovery_calls[:2])) or "-"
        if len(played.recovery_calls) > 2:
            recovery = f"≤ {max(played.recovery_calls)}"
        name = played.policy
        lines.append(
            f"{name:24} {played.regret:8.1%} {played.accuracy:9.1%} {played.penalty_worst:6.2f}× {recovery:>9} "
            f"{played.decide_seconds / played.calls * 1e6:6.1f} µs {played.doubled_part:8.1%} {played.extra_part:6.1%}"
        )
    return "\n".join(lines)


def main(paths: Sequence[str]) -> int:
    """Prints the table of each record."""
    for path in paths:
        record = Record.load(Path(path))
        print(f"{path}: {record.source}, {len(record.points)} calls\n{table(record)}\n")
    return 0 if paths else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

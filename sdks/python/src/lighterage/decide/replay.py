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
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from .engine import Engine
from .model import LOCAL, Stages

#: Two places whose times differ by less than this part are equally right.
BAND: Final = 0.1
#: Right choices in a row after which a step is overcome.
SETTLED: Final = 5
#: Calls of a function that nobody can know anything about.
LEARNING: Final = 3
#: Seconds between two probes of a node, as the runtime makes them.
PROBE_SECONDS: Final = 10.0
NODE: Final = "node"


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

    def save(self, path: Path) -> None:
        """As JSON, times with four digits."""
        rows = [asdict(point) for point in self.points]
        document = {"source": self.source, "speed": self.speed, "round_trip": self.round_trip, "pause": self.pause}
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

    def choose(self, point: Point, now: float) -> tuple[str, float | None]:
        """The place, and after how many seconds a local call is started beside a remote one. Sees sizes only."""

    def learn(self, point: Point, place: str, now: float) -> None:
        """What the call took at the place that was chosen. Sees nothing of the other one."""


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
    #: For each step: calls until the policy chose right again, for good.
    recovery_calls: list[int] = field(default_factory=list)
    decide_seconds: float = 0.0
    calls: int = 0
    places: list[str] = field(default_factory=list)

    @property
    def regret(self) -> float:
        """Time lost, as a part of the oracle's."""
        return self.seconds / self.oracle_seconds - 1

    @property
    def accuracy(self) -> float:
        """Right choices where one place is clearly better."""
        return self.right / self.clear if self.clear else 1.0


def play(record: Record, name: str, chooser: Chooser, first: int = 0) -> Played:
    """Plays the record to a policy; points before `first` are played and not judged."""
    played = Played(name)
    now = 0.0
    seen: dict[str, int] = {}
    wrong: list[bool] = []
    steps: list[int] = []
    for at, point in enumerate(record.points):
        began = time.perf_counter()
        place, hedge_after = chooser.choose(point, now)
        decided = time.perf_counter() - began
        took = point.local if place == LOCAL else point.remote
        is_right = took <= point.best * (1 + BAND)
        if place != LOCAL and hedge_after is not None:
            took = min(took, hedge_after + point.local)
        now += took + record.pause
        chooser.learn(point, place, now)
        if point.is_step:
            steps.append(at)
        wrong.append(point.is_clear and not is_right)
        if at < first:
            continue
        played.calls += 1
        played.decide_seconds += decided
        played.seconds += took
        played.oracle_seconds += point.best
        played.clear += point.is_clear
        played.right += point.is_clear and is_right
        seen[point.function] = seen.get(point.function, 0) + 1
        if seen[point.function] > LEARNING:
            played.penalty_worst = max(played.penalty_worst, took / point.best)
        played.places.append(place)
    played.recovery_calls = [_recovery(wrong[step:]) for step in steps]
    return played


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

    def __init__(self, record: Record, hedges: bool = True, engine: Engine | None = None) -> None:
        self.engine = engine or Engine()
        self.engine.place(NODE, record.speed, record.round_trip)
        self._hedges = hedges
        self._decision: Any = None
        self._probed_at = -PROBE_SECONDS

    def choose(self, point: Point, now: float) -> tuple[str, float | None]:
        if point.probe is not None and now - self._probed_at >= PROBE_SECONDS:
            self._probed_at = now
            self.engine.place(NODE).observe_probe(point.probe, now)
        self._decision = self.engine.decide(
            point.function, point.size, point.bytes_up, (NODE,), now, may_hedge=self._hedges
        )
        return self._decision.place, self._decision.hedge_after if self._hedges else None

    def learn(self, point: Point, place: str, now: float) -> None:
        if place == LOCAL:
            self.engine.observe_local(point.function, point.size, point.local, self._decision)
            return
        after = self._decision.hedge_after if self._hedges else None
        if after is None or point.remote <= after + point.local:
            self.engine.observe_remote(point.function, NODE, point.size, point.stages, now, self._decision)
            return
        # The local call won, and the other one was cancelled: how far its upload had come is all there is to know of it.
        waited = after + point.local
        self.engine.observe_local(point.function, point.size, point.local)
        left = waited - point.stages.encode
        if left < point.stages.up:
            sent = round(point.bytes_up * max(left, 1e-6) / point.stages.up)
            self.engine.place(NODE).observe_transfer((sent, left), None, now)
        else:
            self.engine.observe_late(point.function, NODE, point.size, self._decision.chosen, waited, now)


class Always:
    """Always the same place."""

    def __init__(self, place: str) -> None:
        self._place = place

    def choose(self, point: Point, now: float) -> tuple[str, float | None]:
        return self._place, None

    def learn(self, point: Point, place: str, now: float) -> None:
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

    def choose(self, point: Point, now: float) -> tuple[str, float | None]:
        height, slope = self._exponents[point.function]
        here = math.exp(height + slope * math.log(point.size))
        there = here / self._speed + 2 * point.bytes_up / self._rate + self._round_trip
        return (NODE if there < here else LOCAL), None

    def learn(self, point: Point, place: str, now: float) -> None:
        return


class Ewma:
    """The lower of two moving averages, by function and size class; each place is tried once."""

    WEIGHT: Final = 0.3

    def __init__(self) -> None:
        self._means: dict[tuple[str, int, str], float] = {}

    def choose(self, point: Point, now: float) -> tuple[str, float | None]:
        return min((LOCAL, NODE), key=lambda place: self._means.get(self._key(point, place), 0.0)), None

    def learn(self, point: Point, place: str, now: float) -> None:
        key, took = self._key(point, place), point.local if place == LOCAL else point.remote
        mean = self._means.get(key)
        self._means[key] = took if mean is None else mean + self.WEIGHT * (took - mean)

    def _key(self, point: Point, place: str) -> tuple[str, int, str]:
        return point.function, round(2 * math.log2(point.size)), place


class LinUcb:
    """LinUCB (Li et al., 2010) with an arm for each place and function, on the logarithm of the time."""

    ALPHA: Final = 0.5

    def __init__(self) -> None:
        self._arms: dict[tuple[str, str], tuple[list[list[float]], list[float]]] = {}

    def choose(self, point: Point, now: float) -> tuple[str, float | None]:
        return min((LOCAL, NODE), key=lambda place: self._bound(point, place)), None

    def learn(self, point: Point, place: str, now: float) -> None:
        matrix, vector = self._arm(point, place)
        x = self._features(point)
        took = math.log(point.local if place == LOCAL else point.remote)
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

    def choose(self, point: Point, now: float) -> tuple[str, float | None]:
        return (LOCAL if point.local <= point.remote else NODE), None

    def learn(self, point: Point, place: str, now: float) -> None:
        return


POLICIES: Final[dict[str, Callable[[Record], Chooser]]] = {
    "lighterage": EngineChooser,
    "lighterage, not hedged": lambda record: EngineChooser(record, hedges=False),
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
    lines = [f"{'policy':24} {'regret':>8} {'accuracy':>9} {'worst':>7} {'recovery':>9} {'decide':>9}"]
    for name, make in POLICIES.items():
        played = play(record, name, make(record))
        recovery = ",".join(map(str, played.recovery_calls)) or "-"
        lines.append(
            f"{name:24} {played.regret:8.1%} {played.accuracy:9.1%} {played.penalty_worst:6.2f}× {recovery:>9} "
            f"{played.decide_seconds / played.calls * 1e6:6.1f} µs"
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

"""The study's sweep: each operation, size, rate and codec, so many times; what is there already is not measured again."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import work
from machines import Machines


@dataclass(frozen=True)
class Plan:
    """What is measured."""

    operations: tuple[str, ...] = work.OPERATIONS
    sizes: tuple[int, ...] = work.SIZES
    rates: tuple[int, ...] = work.RATES
    codecs: tuple[str, ...] = work.CODECS
    times: int = 40

    def combinations(self) -> Iterator[tuple[str, int, int, str]]:
        """Rate by rate, so that the network changes seldom; rate 0 is local."""
        for operation, size in itertools.product(self.operations, self.sizes):
            yield operation, size, 0, "local"
        for rate, operation, size in itertools.product(self.rates, self.operations, self.sizes):
            for codec in self.codecs_of(operation):
                yield operation, size, rate, codec

    def codecs_of(self, operation: str) -> tuple[str, ...]:
        """Only multiplication has an operand that may be there already."""
        return tuple(codec for codec in self.codecs if codec != work.KEPT or operation == "multiplication")


QUICK = Plan(sizes=(200, 400), rates=(100,), codecs=("json", "frame"), times=2)


@dataclass
class Cell:
    """All runs of one combination."""

    operation: str
    size: int
    #: Megabits a second; 0 where it ran on the client.
    rate: int
    codec: str
    seconds: list[float] = field(default_factory=list)
    stages: list[dict[str, Any]] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, int, int, str]:
        return self.operation, self.size, self.rate, self.codec


def load(path: Path) -> dict[tuple[str, int, int, str], Cell]:
    """The cells in a file; a line that was cut off when a run was killed is left out."""
    cells = {}
    if path.exists():
        for line in path.read_text().splitlines():
            try:
                cell = Cell(**json.loads(line))
            except (ValueError, TypeError):
                continue
            cells[cell.key] = cell
    return cells


def run(machines: Machines, plan: Plan, path: Path) -> dict[tuple[str, int, int, str], Cell]:
    """Measures what the file lacks and adds it there, cell by cell."""
    cells = load(path)
    keys = [key for key in plan.combinations() if key not in cells or len(cells[key].seconds) < plan.times]
    total, began, rate_now = len(keys), time.monotonic(), 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as out:
        for done, key in enumerate(keys):
            operation, size, rate, codec = key
            _progress(done, total, began, f"{operation} n={size} {rate or 'local'} {codec}")
            if rate == 0:
                answer = machines.ask(do="local", function=operation, n=size, times=plan.times)
            else:
                if rate != rate_now:
                    machines.testbed.rate(rate)
                    rate_now = rate
                    round_trip = machines.ask(do="meet")["round_trip"]
                asked = {"function": operation, "n": size, "codec": codec, "times": plan.times, "round_trip": round_trip}
                answer = machines.ask(do="remote", **asked)
            cells[key] = Cell(*key, seconds=answer["seconds"], stages=answer.get("stages", []))
            print(json.dumps(asdict(cells[key])), file=out, flush=True)
    _progress(total, total, began, "done")
    return {key: cells[key] for key in plan.combinations()}


def _progress(done: int, total: int, began: float, what: str) -> None:
    if sys.stderr.isatty():
        left = (time.monotonic() - began) / done * (total - done) if done else 0.0
        end = "\n" if done == total else ""
        print(f"\rsweep {done}/{total}, {left / 60:.1f} min left: {what:50}", end=end, file=sys.stderr)
    elif done == total or done % max(total // 10, 1) == 0:
        print(f"sweep {done}/{total} after {time.monotonic() - began:.0f} s", file=sys.stderr)

"""The study's metrics, from the cells of a sweep: each a mean with half of its 95 % confidence interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import work
from sweep import Cell

Cells = dict[tuple[str, int, int, str], Cell]
#: The study's stages, in order, of what one call on the node is made of.
STAGES = ("encode", "send", "decode there", "run", "encode there", "receive", "decode")
#: Student's t for 95 %, by degrees of freedom (two-sided); beyond 30 the normal's.
_T = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 14: 2.14, 19: 2.09, 29: 2.05}


@dataclass(frozen=True)
class Estimate:
    """A mean and half of its 95 % confidence interval; a single value has none."""

    mean: float
    half: float = math.nan

    @classmethod
    def of(cls, values: list[float]) -> Estimate:
        freedom = len(values) - 1
        if freedom < 1:
            return cls(statistics.fmean(values))
        t = next((_T[known] for known in sorted(_T, reverse=True) if known <= freedom), 1.96) if freedom <= 30 else 1.96
        return cls(statistics.fmean(values), t * statistics.stdev(values) / math.sqrt(len(values)))

    def over(self, other: Estimate) -> Estimate:
        """The ratio of two that were measured apart (the delta method)."""
        ratio = self.mean / other.mean
        return Estimate(ratio, ratio * math.hypot(self.half / self.mean, other.half / other.mean))

    def distance(self, other: Estimate) -> Estimate:
        """How far two lie apart that were measured apart."""
        return Estimate(abs(self.mean - other.mean), math.hypot(self.half, other.half))

    def text(self, cell: str) -> str:
        """`1.23 ± 0.04`, both written as the mean is."""
        return f"{format(self.mean, cell)} ± {'?' if math.isnan(self.half) else format(self.half, cell)}"


@dataclass(frozen=True)
class Point:
    """One operation, size, codec and rate on the node."""

    seconds: Estimate
    stages: dict[str, Estimate]
    #: Whether the node is done sooner, and whether that is beyond the noise of both.
    pays: bool
    is_clear: bool
    #: Completion over JSON's; nothing where JSON was not measured.
    to_json: Estimate | None
    #: Part of the completion that is not the run: the study counts the network among marshalling.
    share: Estimate
    #: Seconds that the wrong place costs.
    penalty: Estimate


@dataclass(frozen=True)
class Row:
    """One operation and size: here, and on the node by codec and rate."""

    operation: str
    size: int
    local: Estimate
    points: dict[str, dict[int, Point]]

    @property
    def cumulative(self) -> dict[str, Estimate]:
        """By codec: seconds that taking the node costs, summed over the rates where it is the wrong place."""
        found = {}
        for codec, by_rate in self.points.items():
            wrong = [point for point in by_rate.values() if not point.pays]
            # All are measured against one time of the client: its error counts as often.
            half = math.hypot(*(point.seconds.half for point in wrong), len(wrong) * self.local.half)
            found[codec] = Estimate(sum(point.penalty.mean for point in wrong), half)
        return found


def stages(cell: Cell) -> dict[str, Estimate]:
    """Each of the study's stages. The network's share is what nobody's clock has: as in the study."""
    runs = _runs(cell)
    return {name: Estimate.of([run[name] for run in runs]) for name in STAGES}


def _runs(cell: Cell) -> list[dict[str, float]]:
    return [_study(stage, seconds) for stage, seconds in zip(cell.stages, cell.seconds, strict=True)]


def _study(stage: dict[str, Any], seconds: float) -> dict[str, float]:
    there = stage["there"]
    names = {"decode there": "decode", "run": "run", "encode there": "encode"}
    inside = {name: there.get(said, 0.0) for name, said in names.items()}
    waited = there.get("queue", 0.0) + there.get("start", 0.0)
    known = stage["encode"] + stage["decode"] + stage["down"] + sum(inside.values())
    # Waiting for a unit counts as sending: the study's server had none.
    send = max(seconds - known, waited)
    return {"encode": stage["encode"], "send": send, "receive": stage["down"], "decode": stage["decode"], **inside}


def rows(cells: Cells) -> list[Row]:
    """The metrics of all that was measured both here and on the node, in the study's order."""
    found = []
    for operation in work.OPERATIONS:
        for size in sorted({size for known, size, _, _ in cells if known == operation}):
            here = cells.get((operation, size, 0, "local"))
            there = {key[2:]: cell for key, cell in cells.items() if key[:2] == (operation, size) and key[2]}
            if here is None or not there:
                continue
            local = Estimate.of(here.seconds)
            points: dict[str, dict[int, Point]] = {}
            order = sorted(there, key=lambda key: (work.CODECS.index(key[1]), key[0]))
            for rate, codec in order:
                points.setdefault(codec, {})[rate] = _point(there[rate, codec], there.get((rate, "json")), local)
            found.append(Row(operation, size, local, points))
    return found


def _point(cell: Cell, json: Cell | None, local: Estimate) -> Point:
    seconds = Estimate.of(cell.seconds)
    penalty = seconds.distance(local)
    to_json = None
    if json is not None:
        to_json = Estimate(1.0, 0.0) if json is cell else seconds.over(Estimate.of(json.seconds))
    shares = [1 - run["run"] / sum(run.values()) for run in _runs(cell)]
    return Point(
        seconds, stages(cell), seconds.mean < local.mean, penalty.mean > penalty.half, to_json, Estimate.of(shares), penalty
    )


def rates_of(found: list[Row]) -> list[int]:
    return sorted({rate for row in found for by_rate in row.points.values() for rate in by_rate})


def codecs_of(found: list[Row]) -> list[str]:
    return [codec for codec in work.CODECS if any(codec in row.points for row in found)]


def text(found: list[Row]) -> str:
    """The tables, for a terminal."""
    rates = rates_of(found)
    lines: list[str] = ["± is half of the 95 % confidence interval"]

    def table(title: str, width: int, cell: Callable[[Point], str]) -> None:
        heads = " ".join(f"{rate:>{width}}" for rate in rates)
        lines.extend(["", title, f"{'operation':15}{'n':>5}{'codec':>7}  {heads}   (Mbit/s)"])
        for row in found:
            for codec, by_rate in row.points.items():
                cells = " ".join(f"{cell(by_rate[rate]) if rate in by_rate else '':>{width}}" for rate in rates)
                lines.append(f"{row.operation:15}{row.size:>5}{codec:>7}  {cells}")

    lines += ["", "Stages of completion, ms", f"{'operation':15}{'n':>5}{'codec':>7}{'Mbit/s':>7}"]
    lines[-1] += "".join(f"{name:>20}" for name in (*STAGES, "all", "on the client"))
    for row in found:
        for codec, by_rate in row.points.items():
            for rate, point in by_rate.items():
                every = (*point.stages.values(), point.seconds, row.local)
                numbers = "".join(f"{_ms(estimate):>20}" for estimate in every)
                lines.append(f"{row.operation:15}{row.size:>5}{codec:>7}{rate:>7}{numbers}")
    table("Offloading decision vectors: 1 where the node is done sooner; ~ within the noise", 6, _decided)
    table("Completion time over JSON's", 15, lambda point: "" if point.to_json is None else point.to_json.text(".3f"))
    table("Marshalling and network, as a part of completion", 15, lambda point: point.share.text(".1%"))
    table("Seconds that the wrong place costs", 15, lambda point: point.penalty.text(".2f"))
    lines += ["", "Cumulative penalty of the node where it is the wrong place, s"]
    lines.append(f"{'operation':15}{'n':>5}" + "".join(f"{codec:>18}" for codec in codecs_of(found)))
    for row in found:
        cells = {codec: cost.text(".2f") for codec, cost in row.cumulative.items()}
        lines.append(f"{row.operation:15}{row.size:>5}" + "".join(f"{cells.get(codec, ''):>18}" for codec in codecs_of(found)))
    return "\n".join(lines)


def _decided(point: Point) -> str:
    return f"{int(point.pays)}{'' if point.is_clear else '~'}"


def _ms(estimate: Estimate) -> str:
    return Estimate(estimate.mean * 1e3, estimate.half * 1e3).text(".1f")

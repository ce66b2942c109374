"""The study's metrics, from the cells of a sweep."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any

from sweep import Cell, Plan

Cells = dict[tuple[str, int, int, str], Cell]
#: The study's stages, in order, of what one call on the node is made of.
STAGES = ("encode", "send", "decode there", "run", "encode there", "receive", "decode")
#: Student's t for 95 %, by degrees of freedom (two-sided); beyond 30 the normal's.
_T = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26, 14: 2.14, 19: 2.09, 29: 2.05}


def mean(values: list[float]) -> float:
    return statistics.fmean(values)


def half_width(values: list[float]) -> float:
    """Half of the 95 % confidence interval of the mean."""
    freedom = len(values) - 1
    if freedom < 1:
        return math.nan
    t = next((_T[known] for known in sorted(_T, reverse=True) if known <= freedom), 1.96) if freedom <= 30 else 1.96
    return t * statistics.stdev(values) / math.sqrt(len(values))


def stages(cell: Cell) -> dict[str, float]:
    """Mean seconds of each of the study's stages. The network's share is what nobody's clock has: as in the study."""
    rows = [_study(stage, total) for stage, total in zip(cell.stages, cell.seconds, strict=True)]
    return {name: mean([row[name] for row in rows]) for name in STAGES}


def _study(stage: dict[str, Any], total: float) -> dict[str, float]:
    there = stage["there"]
    names = {"decode there": "decode", "run": "run", "encode there": "encode"}
    inside = {name: there.get(said, 0.0) for name, said in names.items()}
    waited = there.get("queue", 0.0) + there.get("start", 0.0)
    known = stage["encode"] + stage["decode"] + stage["down"] + sum(inside.values())
    # Waiting for a unit counts as sending: the study's server had none.
    send = max(total - known, waited)
    return {"encode": stage["encode"], "send": send, "receive": stage["down"], "decode": stage["decode"], **inside}


def marshalling_share(cell: Cell) -> float:
    """Part of the completion time that is not the run: the study counts the network among marshalling."""
    found = stages(cell)
    return 1 - found["run"] / sum(found.values())


@dataclass(frozen=True)
class Row:
    """One operation and size: the study's metrics by codec."""

    operation: str
    size: int
    local: float
    #: By codec: for each rate, whether the node is done sooner.
    vectors: dict[str, tuple[int, ...]]
    #: By codec: for each rate, completion over JSON's.
    to_json: dict[str, tuple[float, ...]]
    #: By codec: for each rate, marshalling's share.
    shares: dict[str, tuple[float, ...]]
    #: By codec: for each rate, seconds that the wrong place costs.
    penalties: dict[str, tuple[float, ...]]

    @property
    def cumulative(self) -> dict[str, float]:
        """By codec: seconds that taking the node costs, summed over the rates where it is the wrong place."""
        return {
            codec: sum(cost for cost, is_right in zip(self.penalties[codec], self.vectors[codec], strict=True) if not is_right)
            for codec in self.penalties
        }


def rows(cells: Cells, plan: Plan) -> list[Row]:
    found = []
    for operation in plan.operations:
        for size in plan.sizes:
            local = mean(cells[operation, size, 0, "local"].seconds)
            codecs = plan.codecs_of(operation)
            remote = {codec: [cells[operation, size, rate, codec] for rate in plan.rates] for codec in codecs}
            times = {codec: [mean(cell.seconds) for cell in row] for codec, row in remote.items()}
            json = times.get("json", [math.nan] * len(plan.rates))
            found.append(
                Row(
                    operation,
                    size,
                    local,
                    {codec: tuple(int(time < local) for time in row) for codec, row in times.items()},
                    {codec: tuple(a / b for a, b in zip(row, json, strict=True)) for codec, row in times.items()},
                    {codec: tuple(marshalling_share(cell) for cell in row) for codec, row in remote.items()},
                    {codec: tuple(abs(time - local) for time in row) for codec, row in times.items()},
                )
            )
    return found


def text(found: list[Row], plan: Plan) -> str:
    """The tables, for a terminal."""
    rates = " ".join(f"{rate:>6}" for rate in plan.rates)
    lines = []

    def table(title: str, cell: str, value: str) -> None:
        lines.extend(["", title, f"{'operation':15}{'n':>5}{'codec':>7}  {rates}   (Mbit/s)"])
        for row in found:
            for codec in row.vectors:
                numbers = " ".join(format(number, cell) for number in getattr(row, value)[codec])
                lines.append(f"{row.operation:15}{row.size:>5}{codec:>7}  {numbers}")

    table("Offloading decision vectors: 1 where the node is done sooner", ">6", "vectors")
    table("Completion time over JSON's", "6.3f", "to_json")
    table("Marshalling and network, as a part of completion", "6.0%", "shares")
    table("Seconds that the wrong place costs", "6.2f", "penalties")
    heads = " ".join(f"{codec:>8}" for codec in plan.codecs)
    lines += ["", "Cumulative penalty of the node where it is the wrong place, s"]
    lines.append(f"{'operation':15}{'n':>5}{'local':>8}  {heads}")
    for row in found:
        numbers = " ".join(f"{cost:8.2f}" for cost in row.cumulative.values())
        lines.append(f"{row.operation:15}{row.size:>5}{row.local:8.3f}  {numbers}")
    return "\n".join(lines)

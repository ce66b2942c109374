"""How measured values lie: mean, quantiles and deviation, the same way in every table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Of some values; the deviation is that of all of them, not of a sample."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    deviation: float

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        """Of at least one value."""
        ordered = sorted(values)
        return Spread(
            len(ordered),
            statistics.fmean(ordered),
            quantile(ordered, 0.5),
            quantile(ordered, 0.9),
            quantile(ordered, 0.99),
            statistics.pstdev(ordered),
        )

    def cells(self) -> str:
        """Its columns of a table, below [`HEAD`]."""
        parts = (self.mean, self.p50, self.p90, self.p99, self.deviation)
        return " ".join(f"{part:9.2f}" for part in parts) + f" {self.count:6}"


#: The columns of `Spread.cells`.
HEAD = " ".join(f"{name:>9}" for name in ("mean", "p50", "p90", "p99", "deviation")) + f" {'events':>6}"


def quantile(ordered: Sequence[float], share: float) -> float:
    """The least of them that so many are not above."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

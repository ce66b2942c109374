"""How a benchmark ends: each figure beside its bar, then all of them as one line of JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Final

from shared.machine import note

#: The relation that is promised, `<=` or `>=`, and the bar, by the figure's name in SPECIFICATION.md.
Bars = Mapping[str, tuple[str, float]]

NAME_WIDTH: Final = 32


def report(bars: Bars, figures: Mapping[str, float | None]) -> int:
    """Prints them; the last line is JSON. How many miss their bar."""
    if disturbed := note():
        print(f"{disturbed}\n")
    missed = 0
    for name, (relation, bar) in bars.items():
        value = figures[name]
        if value is None:
            print(f"{name:{NAME_WIDTH}} {'-':>10}  {relation} {bar:<6g} not measured")
            continue
        is_met = value <= bar if relation == "<=" else value >= bar
        missed += not is_met
        print(f"{name:{NAME_WIDTH}} {value:10.4g}  {relation} {bar:<6g} {'met' if is_met else 'MISSED'}")
    print(json.dumps({name: _plain(figures[name]) for name in bars}))
    return missed


def _plain(value: float | None) -> float | None:
    """A number that JSON has, in four digits."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")

"""Pictures of what `./bench faas` printed: `python benchmarks/faas/plots.py OUTPUT FOLDER` (needs matplotlib).

`faas-latency.svg` has one event at a time, as figures 3 and 4 of the paper; `faas-boots.svg` has starts, as figure 7.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

#: The same bytes each time.
matplotlib.rcParams["svg.hashsalt"] = "lighter"
#: One for each platform.
COLOURS: Final = ("#4c72b0", "#64b5cd", "#55a868", "#8c8c8c", "#dd8452", "#937860", "#c44e52", "#da8bc3", "#ccb974")
ALONE: Final = "one at a time: "
BOOTS: Final = "until it can handle something"
#: Columns of numbers at a row's end: mean, p50, p90, p99, deviation, events.
NUMBERS: Final = 6


@dataclass
class Row:
    """A line of a table."""

    name: str
    p50: float
    p90: float


def table(text: str, title: str) -> list[Row]:
    """The rows of the table below a line that begins so."""
    lines = text.splitlines()
    began = next(at for at, line in enumerate(lines) if line.startswith(title))
    rows = []
    for line in lines[began + 2 :]:
        words = line.split()
        if len(words) <= NUMBERS:
            break
        numbers = [float(word) for word in words[-NUMBERS:]]
        rows.append(Row(" ".join(words[:-NUMBERS]), numbers[1], numbers[2]))
    return rows


def latency(rows: list[Row], path: Path) -> None:
    """A group of bars for each workload; a whisker ends at the 90th percentile."""
    by_platform: dict[str, dict[str, Row]] = {}
    for row in rows:
        workload, _, platform = row.name.partition(" ")
        by_platform.setdefault(platform.strip(), {})[workload] = row
    workloads = list(dict.fromkeys(row.name.partition(" ")[0] for row in rows))
    figure, axes = plt.subplots(figsize=(10, 4.6), layout="constrained")
    width = 0.85 / len(by_platform)
    for at, ((platform, found), colour) in enumerate(zip(by_platform.items(), COLOURS, strict=True)):
        places = [workloads.index(name) + (at - (len(by_platform) - 1) / 2) * width for name in found]
        medians = [row.p50 for row in found.values()]
        above = [[0.0] * len(found), [row.p90 - row.p50 for row in found.values()]]
        axes.bar(places, medians, width * 0.92, yerr=above, label=platform, color=colour, ecolor="#444444", capsize=1.5)
    axes.set_xticks(range(len(workloads)), workloads)
    axes.set_yscale("log")
    axes.set_ylabel("ms from the publish to the sink")
    axes.set_title("One event at a time: median, and 90th percentile")
    axes.legend(ncols=4, fontsize="small", loc="upper left")
    axes.margins(y=0.25)
    _save(figure, path)


def boots(rows: list[Row], path: Path) -> None:
    """A bar for each kind of start."""
    figure, axes = plt.subplots(figsize=(10, 3.2), layout="constrained")
    names = [row.name for row in rows]
    bars = axes.barh(names, [row.p50 for row in rows], color=COLOURS[0])
    axes.bar_label(bars, fmt="%.2f", padding=3)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("ms until it can handle something, median")
    axes.margins(x=0.15)
    _save(figure, path)


def _save(figure: plt.Figure, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    output, folder = Path(sys.argv[1]).read_text(), Path(sys.argv[2])
    latency(table(output, ALONE), folder / "faas-latency.svg")
    boots(table(output, BOOTS), folder / "faas-boots.svg")


if __name__ == "__main__":
    main()

"""`./bench page`: what the dashboard weighs, how soon it shows something, and what those who look cost the node."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from http.client import HTTPException
from pathlib import Path
from typing import Final

import load
import looked
from watched import Node

import shared.figures
import shared.machine

BARS: Final = {
    "page_gz_kb": ("<=", 30),
    "first_data_ms": ("<=", 300),
    "draw_p99_ms": ("<=", 8),
    "viewer_core_percent": ("<=", 0.5),
    "ten_viewers_core_percent": ("<=", 1),
    "no_viewer_cost": ("<=", 0),
    "events_with_10_viewers": (">=", 0.98),
    "binary_added_kb": ("<=", 60),
}
#: The figures of what is measured for itself.
NOBODY: Final = ("no_viewer_cost",)
VIEWERS: Final = ("viewer_core_percent", "ten_viewers_core_percent")
DRAWN: Final = ("first_data_ms", "draw_p99_ms")
EVENTS: Final = ("events_with_10_viewers",)
#: What a measurement may end with without ending the run.
FAILURES: Final = (OSError, ValueError, LookupError, RuntimeError, HTTPException, subprocess.SubprocessError)
FUNCTIONS: Final = 1_000
EVENTS_A_SECOND: Final = 10_000
#: Seconds for which a number of viewers look before another one does.
LOOK_SECONDS: Final = 6.0
#: How long a node may take to come to rest, how long each look at it lasts, and by what part two of them may differ.
SETTLE_SECONDS_MAX: Final = 15.0
SETTLE_LOOK_SECONDS: Final = 2.0
SETTLED: Final = 0.1


class Run:
    """One run: what is asked for, and what was found."""

    def __init__(self, asked: argparse.Namespace, folder: Path) -> None:
        self._asked, self._folder = asked, folder
        self.figures: dict[str, float | None] = dict.fromkeys(BARS)
        #: Whether nothing has failed.
        self.is_whole = True

    def tried(self, names: Iterable[str], measure: Callable[[], None]) -> None:
        """Measures. Where that fails, a line says why these figures are missing."""
        try:
            measure()
        except FAILURES as problem:
            self.is_whole = False
            for name in names:
                if self.figures[name] is None:
                    print(f"{name}: not measured: {type(problem).__name__}: {problem}")

    def all(self) -> None:
        """All figures, of one node."""
        figures = self.figures
        rounds, drawn_seconds = (3, 10.0) if self._asked.quick else (9, 40.0)
        node = Node(self._asked.lighter, self._folder / "data")
        try:
            files = node.files()
            figures["page_gz_kb"] = sum(files.values()) / 1e3
            # What the program carries of the page is what travels; the code that serves it is not told apart.
            figures["binary_added_kb"] = figures["page_gz_kb"]
            print("files:", ", ".join(f"{name or 'the page'} {size}" for name, size in files.items()))
            node.deploy(self._asked.guests / "hello.wasm", FUNCTIONS)
            self.tried(NOBODY, lambda: figures.update(_nobody(node, LOOK_SECONDS)))
            with load.Steady(node, EVENTS_A_SECOND) as steady:
                self.tried(VIEWERS, lambda: figures.update(_viewers(node, rounds)))
                self.tried(DRAWN, lambda: figures.update(looked.figures(node, drawn_seconds)))
                print(f"load: {steady.rate():.0f} events/s of {EVENTS_A_SECOND} wanted")
            self.tried(EVENTS, lambda: figures.update(_events(node, rounds)))
        finally:
            node.stop()


def main() -> int:
    """Prints the figures; how many miss their bar, or 1 where something has failed."""
    parser = argparse.ArgumentParser(prog="./bench page", description=__doc__)
    parser.add_argument("--lighter", required=True, help="the program")
    parser.add_argument("--guests", required=True, type=Path, help="components to deploy")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    asked = parser.parse_args()
    print(shared.machine.words())
    with tempfile.TemporaryDirectory() as folder:
        run = Run(asked, Path(folder))
        run.tried(BARS, run.all)
    missed = shared.figures.report(BARS, run.figures)
    return missed if run.is_whole else max(missed, 1)


def _nobody(node: Node, seconds: float) -> dict[str, float]:
    """How much oftener the idle node wakes up in a second after somebody looked than before; its own timers go on."""
    _settle(node)
    before = node.wake_ups(seconds)
    with node.viewers(10):
        load.wait(2.0)
    load.wait(1.0)
    after = node.wake_ups(seconds)
    print(f"wake-ups of the idle node: {before:.1f}/s before anybody looked, {after:.1f}/s after ten have left")
    # A node that nobody looks at wakes up some times a second, now one more and now one less.
    return {"no_viewer_cost": max(0.0, round(after - before - 1.0, 1))}


def _settle(node: Node) -> None:
    """Waits until two looks in a row agree: a node is busy for some seconds with what was deployed to it."""
    until = time.monotonic() + SETTLE_SECONDS_MAX
    last = node.wake_ups(SETTLE_LOOK_SECONDS)
    while time.monotonic() + SETTLE_LOOK_SECONDS <= until:
        found = node.wake_ups(SETTLE_LOOK_SECONDS)
        if abs(found - last) <= SETTLED * max(found, last):
            return
        last = found
    print(f"the node has not come to rest within {SETTLE_SECONDS_MAX:.0f} s: {last:.1f} wake-ups/s")


def _viewers(node: Node, rounds: int) -> dict[str, float]:
    """What viewers cost, in percent of a core: medians of differences between neighbours in time."""
    found: dict[int, list[float]] = {1: [], 10: []}
    for number in range(rounds):
        order = (0, 1, 10) if number % 2 == 0 else (10, 1, 0)
        percent = {}
        for count in order:
            with node.viewers(count):
                load.wait(1.0)
                percent[count] = node.core_percent(LOOK_SECONDS)
        for count, all_found in found.items():
            all_found.append(percent[count] - percent[0])
        print("core of the node: " + ", ".join(f"{percent[count]:.2f} % with {count} viewers" for count in (0, 1, 10)))
    return {
        "viewer_core_percent": statistics.median(found[1]),
        "ten_viewers_core_percent": statistics.median(found[10]),
    }


def _events(node: Node, rounds: int) -> dict[str, float]:
    """Events a second with ten viewers by those without, as fast as they are handled: the median of rounds."""
    ratios = []
    for number in range(rounds):
        rates = {}
        for count in (0, 10) if number % 2 == 0 else (10, 0):
            with node.viewers(count):
                rates[count] = load.flood(node)
        ratios.append(rates[10] / rates[0])
        print(f"events/s: {rates[0]:.0f} with nobody looking, {rates[10]:.0f} with ten")
    return {"events_with_10_viewers": statistics.median(ratios)}


if __name__ == "__main__":
    raise SystemExit(1 if main() else 0)

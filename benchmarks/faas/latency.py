"""The workloads from the source to the sink: ours in three classes and each peer, all up at once, in one run."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Final

import beside
import glue
import ours
from bench import Bench
from workloads import ALL, BURST, Source, Workload

from shared.namespaces import Unable
from shared.spread import HEAD, Spread

#: What a measurement may end with without ending the run.
FAILURES: Final = (OSError, TimeoutError, ValueError, RuntimeError, HTTPException, subprocess.SubprocessError)
#: The figure of the CO2 workflow, by class.
CO2: Final = {"wasm": "co2_p50_ms", "microvm": "co2_microvm_p50_ms"}
#: How idle a workload is before its single event: ten minutes, as the paper's devices are; `--quick` cannot wait so long.
IDLE_SECONDS: Final = (1.0, 600.0)
#: How events come, as the tables call it.
ALONE: Final = "one at a time"
BURSTS: Final = f"bursts of {BURST}"
AFTER_IDLE: Final = "single after idle"
#: Events one at a time, before it is the turn of another platform.
BLOCK: Final = 10
#: Until then a platform has made ready again what was used, and a container that was new for its event is gone.
REST_SECONDS: Final = 0.05
GONE_SECONDS: Final = 0.3


@dataclass
class Platform:
    """One platform: what opens it, and milliseconds of each workload, by how its events came."""

    name: str
    opened: contextlib.AbstractContextManager[Source]
    took: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    #: Why it is not measured, or not any more.
    failure: str = ""
    _up: contextlib.ExitStack = field(init=False, default_factory=contextlib.ExitStack)

    @property
    def is_cold(self) -> bool:
        """Whether each event has a container of its own, which takes long."""
        return self.name.endswith("cold")

    @property
    def is_measured(self) -> bool:
        """Whether it can be compared."""
        return ALONE in self.took

    def start(self) -> None:
        """From now on it is up, unless it fails."""
        began = time.monotonic()
        try:
            self.source = self._up.enter_context(self.opened)
            # What is started once is not what is measured.
            for one in ALL:
                self.source.one_at_a_time(one, 1 if self.is_cold else 3)
        except (Unable, *FAILURES) as why:
            self._fail(f"{type(why).__name__}: {why}")
            return
        print(f"  {self.name}: up after {time.monotonic() - began:.0f} s")

    def take(self, pattern: str, workload: Workload, send: Send) -> None:
        """Adds what events took. Where they fail, their pattern is left out, and what was measured before stays."""
        if self.failure:
            return
        try:
            took = send(self, workload)
        except FAILURES as why:
            self.took.pop(pattern, None)
            self._fail(f"{pattern}, {workload.name}: {why}")
            return
        self.took.setdefault(pattern, {}).setdefault(workload.name, []).extend(took)

    def _fail(self, why: str) -> None:
        self.failure = why
        print(f"  {self.name}: not measured: {why}")
        self.end()

    def end(self) -> None:
        """It is not up any more."""
        try:
            self._up.close()
        except FAILURES as why:
            print(f"  {self.name}: did not end as it should: {why}")

    def p50(self, workload: str) -> float:
        return Spread.of(self.took[ALONE][workload]).p50


#: Sends events of a workload to a platform, and says what they took.
Send = Callable[[Platform, Workload], list[float]]


def measure(bench: Bench) -> None:
    """Prints the tables, and sets what is compared in them."""
    found = {class_: Platform(f"lighter, {class_}", _ours(bench, class_)) for class_ in ours.CLASSES}
    others = [Platform(name, _peer(bench, name)) for name in beside.ALL]
    all_ = [*found.values(), *others]
    with contextlib.ExitStack() as open_:
        for one in all_:
            open_.callback(one.end)
            one.start()
        _send(bench, all_)
    for name, why in beside.NOT_HAD.items():
        print(f"  {name}: not had: {why}")
    for pattern in (ALONE, BURSTS, AFTER_IDLE):
        _table(pattern, all_)
    _compare(bench, found, [one for one in others if one.name not in beside.NO_PEERS])


@contextlib.contextmanager
def _ours(bench: Bench, class_: str) -> Iterator[Source]:
    with ours.up(bench.lighter, bench.folder(class_), class_) as up:
        yield up.source


@contextlib.contextmanager
def _peer(bench: Bench, name: str) -> Iterator[Source]:
    folder = bench.folder(name)
    with beside.ALL[name](bench.peers, folder) as run, glue.joined(bench.peers, folder, run) as source:
        yield source


def _send(bench: Bench, all_: list[Platform]) -> None:
    """Each pattern to all platforms, which rest at once, so that they share their ten minutes."""
    cold = bench.pick(2, BLOCK)
    for number in range(bench.pick(2, 10)):
        _round(all_, number, ALONE, lambda on, one: on.source.one_at_a_time(one, cold if on.is_cold else BLOCK))
    # A container for each event of a burst would take minutes, and says no more than one at a time.
    warm = [one for one in all_ if not one.is_cold]
    for number in range(bench.pick(1, 5)):
        _round(warm, number, BURSTS, lambda on, one: on.source.burst(one))
    for number in range(bench.pick(2, 3)):
        time.sleep(IDLE_SECONDS[not bench.is_quick])
        _round(all_, number, AFTER_IDLE, lambda on, one: on.source.one_at_a_time(one, 1, 0.0))


def _round(all_: list[Platform], number: int, pattern: str, send: Send) -> None:
    """Some events of each workload at each platform in turn, so that what else the machine does meets all alike.

    Every other round goes backwards.
    """
    for workload in ALL:
        for platform in all_ if number % 2 == 0 else reversed(all_):
            platform.take(pattern, workload, send)
            time.sleep(GONE_SECONDS if platform.is_cold else REST_SECONDS)


def _table(pattern: str, all_: list[Platform]) -> None:
    print(f"\n{pattern}: from the publish to the sink, in ms")
    print(f"{'workload':10} {'platform':30} {HEAD}")
    for one in ALL:
        for platform in all_:
            if pattern in platform.took:
                print(f"{one.name:10} {platform.name:30} {Spread.of(platform.took[pattern][one.name]).cells()}")


def _compare(bench: Bench, ours_: dict[str, Platform], others: list[Platform]) -> None:
    for class_, figure in CO2.items():
        if ours_[class_].is_measured:
            bench.figures[figure] = ours_[class_].p50("co2")
        else:
            bench.unable([figure], ours_[class_].failure)
    microvm, peers = ours_["microvm"], [one for one in others if one.is_measured]
    if not microvm.is_measured or not peers:
        bench.unable(["co2_vs_best_peer", "workloads_vs_best_peer"], "there is no peer, or no microvm, to compare")
        return
    ratios = {one.name: min(peer.p50(one.name) for peer in peers) / microvm.p50(one.name) for one in ALL}
    print("\nthe best peer's median over that of our class microvm, one event at a time")
    for name, ratio in ratios.items():
        best = min(peers, key=lambda peer, name=name: peer.p50(name))
        print(f"  {name:10} {ratio:6.2f}  ({best.name})")
    bench.figures["co2_vs_best_peer"] = ratios.pop("co2")
    bench.figures["workloads_vs_best_peer"] = min(ratios.values())

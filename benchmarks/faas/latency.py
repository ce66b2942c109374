"""The workloads from the source to the sink: ours in three classes, then each peer, in one run."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
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


@dataclass
class Measured:
    """One platform: milliseconds of each workload, by how its events came."""

    name: str
    took: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def p50(self, workload: str) -> float:
        return Spread.of(self.took["one at a time"][workload]).p50


def measure(bench: Bench) -> None:
    """Prints the tables, and sets what is compared in them."""
    found = [measured for name in ours.CLASSES if (measured := _ours(bench, name)) is not None]
    others = [measured for name in beside.ALL if (measured := _peer(bench, name)) is not None]
    for name, why in beside.NOT_HAD.items():
        print(f"  {name}: not had: {why}")
    for pattern in ("one at a time", f"bursts of {BURST}", "single after idle"):
        _table(pattern, found + others)
    _compare(bench, {one.name: one for one in found}, [one for one in others if one.name not in beside.NO_PEERS])


def _ours(bench: Bench, class_: str) -> Measured | None:
    began = time.monotonic()
    measured = Measured(f"lighter, {class_}")
    try:
        with ours.up(bench.lighter, bench.folder(class_), class_) as up:
            _all(bench, up.source, measured)
    except (Unable, *FAILURES) as why:
        print(f"  {measured.name}: not measured: {why}")
        bench.unable([CO2[class_]] if class_ in CO2 else [], str(why))
        return None
    print(f"  {measured.name}: {time.monotonic() - began:.0f} s")
    return measured


def _peer(bench: Bench, name: str) -> Measured | None:
    began = time.monotonic()
    measured = Measured(name)
    folder = bench.folder(name)
    try:
        with beside.ALL[name](bench.peers, folder) as run, glue.joined(bench.peers, folder, run) as source:
            _all(bench, source, measured)
    except (Unable, *FAILURES) as why:
        print(f"  {name}: not measured: {why}")
        return None
    print(f"  {name}: {time.monotonic() - began:.0f} s")
    return measured


def _all(bench: Bench, source: Source, measured: Measured) -> None:
    is_cold = measured.name.endswith("cold")
    singles = bench.pick(4 if is_cold else 20, 100)
    patterns: dict[str, Callable[[Workload], list[float]]] = {
        "one at a time": lambda one: source.one_at_a_time(one, singles),
        # A container for each event of a burst would take minutes, and says no more than one at a time.
        **({} if is_cold else {f"bursts of {BURST}": lambda one: _bursts(source, one, bench.pick(1, 5))}),
    }
    for one in ALL:
        # What is started once is not what is measured.
        source.one_at_a_time(one, 1 if is_cold else 3)
    for name, send in patterns.items():
        measured.took[name] = {one.name: send(one) for one in ALL}
    try:
        measured.took["single after idle"] = _after_idle(bench, source)
    except FAILURES as why:
        # What was measured before stays.
        print(f"  {measured.name}, single after idle: not measured: {why}")


def _bursts(source: Source, workload: Workload, count: int) -> list[float]:
    return [ms for _ in range(count) for ms in source.burst(workload)]


def _after_idle(bench: Bench, source: Source) -> dict[str, list[float]]:
    """All of them are idle for the same time, and one event of each ends it."""
    took: dict[str, list[float]] = {one.name: [] for one in ALL}
    for _ in range(bench.pick(2, 3)):
        time.sleep(IDLE_SECONDS[not bench.is_quick])
        for one in ALL:
            took[one.name] += source.one_at_a_time(one, 1, 0.0)
    return took


def _table(pattern: str, all_: list[Measured]) -> None:
    print(f"\n{pattern}: from the publish to the sink, in ms")
    print(f"{'workload':10} {'platform':30} {HEAD}")
    for one in ALL:
        for measured in all_:
            if pattern in measured.took:
                print(f"{one.name:10} {measured.name:30} {Spread.of(measured.took[pattern][one.name]).cells()}")


def _compare(bench: Bench, ours_: dict[str, Measured], peers: list[Measured]) -> None:
    for class_, figure in CO2.items():
        if measured := ours_.get(f"lighter, {class_}"):
            bench.figures[figure] = measured.p50("co2")
    microvm = ours_.get("lighter, microvm")
    if microvm is None or not peers:
        bench.unable(["co2_vs_best_peer", "workloads_vs_best_peer"], "there is no peer, or no microvm, to compare")
        return
    ratios = {one.name: min(peer.p50(one.name) for peer in peers) / microvm.p50(one.name) for one in ALL}
    print("\nthe best peer's median over that of our class microvm, one event at a time")
    for name, ratio in ratios.items():
        best = min(peers, key=lambda peer, name=name: peer.p50(name))
        print(f"  {name:10} {ratio:6.2f}  ({best.name})")
    bench.figures["co2_vs_best_peer"] = ratios.pop("co2")
    bench.figures["workloads_vs_best_peer"] = min(ratios.values())

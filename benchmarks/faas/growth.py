"""Memory and processor of the whole system while one to ten units of a workload are at work."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Final

import ours
from bench import Bench
from latency import FAILURES
from workloads import ALL

from shared.namespaces import Unable
from shared.spread import Spread

UNITS: Final = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
UNITS_QUICK: Final = (1, 10)
#: The workload of the paper's figures.
WORKLOAD: Final = next(one for one in ALL if one.name == "fridge")
#: Events for each unit in a round, in bursts: more than one handles before the next is asked for.
EVENTS_A_UNIT: Final = 20


def measure(bench: Bench) -> None:
    """A table for each class. The figures are those of the class microvm, ten units over one."""
    for class_ in ours.CLASSES:
        try:
            rows = _class(bench, class_)
        except (Unable, *FAILURES) as why:
            print(f"  lighter, {class_}: not measured: {why}")
            if class_ == "microvm":
                bench.unable(["units_10_memory_growth", "units_10_cpu_growth"], str(why))
            continue
        print(f"\n{class_}: the whole system, {EVENTS_A_UNIT} events a unit and round")
        print(f"{'units':>5} {'memory MB':>22} {'CPU ms':>22}")
        for units, (memory, cpu) in rows.items():
            print(f"{units:5} {memory.mean:12.1f} ± {memory.deviation:7.1f} {cpu.mean:12.1f} ± {cpu.deviation:7.1f}")
        if class_ == "microvm":
            bench.figures["units_10_memory_growth"] = rows[10][0].mean / rows[1][0].mean
            bench.figures["units_10_cpu_growth"] = rows[10][1].mean / rows[1][1].mean


def _class(bench: Bench, class_: str) -> dict[int, tuple[Spread, Spread]]:
    return {units: _units(bench, class_, units) for units in (UNITS_QUICK if bench.is_quick else UNITS)}


def _units(bench: Bench, class_: str, units: int) -> tuple[Spread, Spread]:
    """On a node of its own: what the events of others left there, such as retained messages, would count too."""
    with ours.up(bench.lighter, bench.folder(f"growth-{class_}-{units}"), class_, (WORKLOAD.name,)) as up:
        manifest = up.projects[WORKLOAD.name] / "lighter.toml"
        text = re.sub(r"^units\.maximum = .*\n", "", manifest.read_text(), flags=re.M)
        manifest.write_text(re.sub(r"^(\[function\.count\])$", rf"\1\nunits.maximum = {units}", text, flags=re.M))
        up.node.deploy(manifest.parent)
        up.source.burst(WORKLOAD, units)
        memory, cpu = [], []
        for _ in range(bench.pick(2, 10)):
            began = _busy_ms()
            up.source.burst(WORKLOAD, EVENTS_A_UNIT * units)
            cpu.append(_busy_ms() - began)
            memory.append(_used_mb())
            time.sleep(0.2)
        return Spread.of(memory), Spread.of(cpu)


def _used_mb() -> float:
    """Memory of the whole system that is not to be had: everything else on it counts too, as in the paper."""
    said = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
    return (int(said["MemTotal"].split()[0]) - int(said["MemAvailable"].split()[0])) / 1e3


def _busy_ms() -> float:
    """Processor time of the whole system that was not idle."""
    user, nice, system, _, _, *more = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9])
    return (user + nice + system + sum(more)) * 10.0

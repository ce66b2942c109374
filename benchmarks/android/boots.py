"""Boots with different bounds of memory, and what one costs: table 1 and figure 8 of the paper.

Joules are read where the machine counts them (powercap). Where it does not, they are a model: the seconds that
processors computed, times a power that is assumed and said with the number.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from starts import PAUSE_SECONDS, ready_ms

from peers import Container, Machine, Unable, cpu_seconds_of_ended
from shared.node import Node
from work import MEMORIES_MB

#: What one busy core of a server takes while it computes, for the model: 120 W of a processor of 16 cores.
WATTS_A_CORE: Final = 7.5
POWERCAP: Final = Path("/sys/class/powercap")
#: Whose energy and memory are those of table 1.
USUAL_MB: Final = 1_024
#: Those with which peers are booted once.
IN_A_HURRY_MB: Final = (64, 512, 1_024)


@dataclass
class Boots:
    """What was found of one kind: milliseconds by MiB, or why there are none."""

    name: str
    image_mb: float | None = None
    pss_mb: float | None = None
    cpu_seconds: float | None = None
    joules: float | None = None
    times_ms: dict[int, float] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)


class Energy:
    """The joules that all packages of processors have taken, where the machine counts them."""

    def __init__(self) -> None:
        names = sorted(POWERCAP.glob("*-rapl:?")) if POWERCAP.exists() else []
        self._counters = [name / "energy_uj" for name in names if _is_readable(name / "energy_uj")]

    @property
    def is_measured(self) -> bool:
        return bool(self._counters)

    def joules(self) -> float:
        return sum(int(counter.read_text()) for counter in self._counters) / 1e6


def units(node: Node, image_mb: float, pss: float, times: int) -> Boots:
    """Units on Libdroid, with what they cost beside a node that does nothing."""
    found = Boots("unit on Libdroid, here", image_mb, pss)
    for memory in MEMORIES_MB:
        found.times_ms[memory] = ready_ms(node, f"boot-{memory}", 64, times)
    client = node.client()
    name = f"boot-{USUAL_MB}"
    # Each call uses one unit up, and another one is made for the next.
    calls = 5 * times

    def call() -> None:
        client.call(name, b"64")
        time.sleep(PAUSE_SECONDS)

    call()
    _cost(found, node.cpu_seconds, call, calls)
    client.close()
    return found


def peers(kind: Container | Machine, times: int) -> Boots:
    """Containers or machines: the same."""
    found = Boots(kind.name, kind.image_bytes() / 1e6)
    for memory in MEMORIES_MB:
        if times == 1 and memory not in IN_A_HURRY_MB:
            found.reasons.append(f"{kind.name} with {memory} MiB: left out, because of --quick")
            continue
        try:
            booted = [_boot(kind, memory) for _ in range(times)]
        except Unable as why:
            found.reasons.append(f"{kind.name} with {memory} MiB: {why}")
            continue
        found.times_ms[memory] = statistics.median(boot for boot, _ in booted)
        if memory <= USUAL_MB:
            found.pss_mb = statistics.mean(pss for _, pss in booted)
    if USUAL_MB in found.times_ms:
        _cost(found, cpu_seconds_of_ended, lambda: _boot(kind, USUAL_MB), times)
    return found


def _boot(kind: Container | Machine, memory_mb: int) -> tuple[float, float]:
    with kind.booted(memory_mb) as booted:
        return booted.boot_ms, booted.pss_mb


def _cost(found: Boots, cpu_seconds: Callable[[], float], boot: Callable[[], object], times: int) -> None:
    energy = Energy()
    before, began = cpu_seconds(), time.monotonic()
    joules = energy.joules()
    for _ in range(times):
        boot()
    found.cpu_seconds = (cpu_seconds() - before) / times
    joules, took = energy.joules() - joules, time.monotonic() - began
    if energy.is_measured:
        # Less what the machine takes while it does nothing.
        before, began = energy.joules(), time.monotonic()
        time.sleep(5)
        idle_watts = (energy.joules() - before) / (time.monotonic() - began)
        found.joules = max(joules - idle_watts * took, 0) / times
    else:
        found.joules = found.cpu_seconds * WATTS_A_CORE


def tables(all_: list[Boots]) -> None:
    """Prints both."""
    how = "measured (powercap)" if Energy().is_measured else f"a MODEL: CPU-seconds x {WATTS_A_CORE} W, nothing was measured"
    print(f"\nOne instance, after the paper's table 1 (joules of a boot are {how}):")
    print(f"{'':42} {'memory MB':>10} {'image MB':>10} {'boot CPU s':>11} {'boot J':>8}")
    for one in all_:
        cells = (one.pss_mb, one.image_mb, one.cpu_seconds, one.joules)
        print(f"{one.name:42} {_cell(cells[0], 10)} {_cell(cells[1], 10)} {_cell(cells[2], 11)} {_cell(cells[3], 8)}")
    print(f"{'the paper: Android Unikernel':42} {52:>10} {70:>10} {'-':>11} {15.6:>8}")
    print(f"{'the paper: container / virtual machine':42} {'128/516':>10} {'1020/1400':>10} {'-':>11} {'49/334':>8}")
    print("\nBoot in milliseconds by MiB of memory, after the paper's figure 8 (<1 s, 2 s, tens of seconds there):")
    print(f"{'':42}" + "".join(f"{memory:>9}" for memory in MEMORIES_MB))
    for one in all_:
        print(f"{one.name:42}" + "".join(_cell(one.times_ms.get(memory), 9) for memory in MEMORIES_MB))
    for one in all_:
        for reason in one.reasons:
            print(f"not measured: {reason}")


def _cell(value: float | None, width: int) -> str:
    return f"{'-' if value is None else f'{value:.4g}':>{width}}"


def _is_readable(file: Path) -> bool:
    try:
        file.read_text()
    except OSError:
        return False
    return True

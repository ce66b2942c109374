"""`./bench android`: functions in Java and for Android, beside a container and a virtual machine with a stock JVM.

Parts run alone: `--part starts --part dex`. What a part that did not run would have measured is null in the last line,
and so is what could not be measured; a line says why.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import boots
import java
import starts
import workloads

import shared.figures
import shared.machine
import work
from offload.testbed import NODE_ADDRESS
from offload.testbed import Unable as NoTestbed
from peers import LIBDROID, ROOT, Container, Machine, Rootfs, Unable, kernel
from shared.node import Node

BARS: Final = {
    "java_ready_p50_ms": ("<=", 45),
    "android_ready_p50_ms": ("<=", 80),
    "android_pss_mb": ("<=", 45),
    "android_image_mb": ("<=", 70),
    "java_image_mb": ("<=", 60),
    "call_with_spare_p50_ms": ("<=", 1),
    "warm_call_p50_ms": ("<=", 0.4),
    "dex_round_trip_failed": ("<=", 0),
    "dex_convert_warm_ms": ("<=", 40),
    "dex_convert_115kB_ms": ("<=", 400),
    "spike_p99_ms": ("<=", 10_000),
    "spike_vs_container": (">=", 5),
    "mean_gain_over_local": (">=", 0.6),
    "peak_vs_jvm": (">=", 0.95),
    "java_python_same_choices": (">=", 1),
}
#: Seconds that a boot of the machine may take.
BOOT_SECONDS: Final = (30.0, 180.0)


class Bench:
    """One run: what is asked for, what stands ready, and what was found."""

    def __init__(self, folder: Path, lighter: Path, is_quick: bool) -> None:
        self.folder, self.is_quick = folder, is_quick
        self.node = Node(lighter.resolve(), folder / "data")
        self.figures: dict[str, float | None] = dict.fromkeys(BARS)
        #: Why a figure is null.
        self.reasons: dict[str, str] = {}
        self._rootfs: Rootfs | None = None
        self._peers: list[Container | Machine] | None = None

    def pick(self, quick: int, whole: int) -> int:
        return quick if self.is_quick else whole

    def rootfs(self) -> Rootfs:
        """That of the peers, made once."""
        self._rootfs = self._rootfs or Rootfs(self.folder)
        return self._rootfs

    def peers(self) -> list[Container | Machine]:
        """Those that are to be had, made once; a line says why another one is not."""
        if self._peers is not None:
            return self._peers
        found: list[Container | Machine] = []
        makers: list[Callable[[], Container | Machine]] = [lambda: starts.container(self.rootfs()), self._machine]
        for make in makers:
            try:
                found.append(make())
            except Unable as why:
                print(f"not measured: {why}")
        self._peers = found
        return found

    def _machine(self) -> Machine:
        return Machine(self.rootfs(), kernel(), BOOT_SECONDS[not self.is_quick])

    def prepare(self) -> None:
        """What every part needs: the functions, and the bases."""
        work.run(ROOT / "tools/libdroid")
        work.compile_work(self.folder)
        self.node.command("base", "build", "java")
        self.node.command("base", "build", "android", "--libdroid", str(LIBDROID))
        for base in json.loads(self.node.command("base", "ls", "--json")):
            self.figures[f"{base['kind']}_image_mb"] = base["bytes"] / 1e6

    @contextlib.contextmanager
    def up(self) -> Iterator[None]:
        """The node with all functions."""
        with self.node.up():
            self.node.deploy(self.folder)
            yield

    def starts(self) -> None:
        times = self.pick(8, 60)
        with self.up():
            self.figures["java_ready_p50_ms"] = starts.ready_ms(self.node, "plain", 1, times)
            self.figures["android_ready_p50_ms"] = starts.ready_ms(self.node, "picture", 64, times)
            self.figures["android_pss_mb"] = starts.unit_pss_mb()
            client = self.node.client()
            self.figures["call_with_spare_p50_ms"] = starts.call_ms(self.node, "plain", 2 * times, starts.PAUSE_SECONDS)
            self.figures["warm_call_p50_ms"] = starts.call_ms(self.node, "warm", 100 * times, 0)
            runtime = next((self.node.folder / "bases").glob("ready-android-*/runtime"))
            version = java.version_ms(runtime, 2 * times)
            print(f"\nthe same Java outside of a jail, `java -version` with its own options: {version:.1f} ms")
            self.figures["peak_vs_jvm"] = java.peak_vs_jvm(client, runtime, self.folder, self.pick(5, 20))
            client.close()

    def spike(self) -> None:
        with self.up():
            client = self.node.client()
            client.call("plain", b"1")
            client.close()
            ours = self.figures["spike_p99_ms"] = starts.spike_p99_ms(self.node)
        theirs = starts.spike_container_p99_ms(starts.container(self.rootfs()))
        print(f"\n1 -> {starts.SPIKE} requests within a second, p99: {ours:.0f} ms, containers {theirs:.0f} ms")
        self.figures["spike_vs_container"] = theirs / ours

    def dex(self) -> None:
        libraries, failed = java.round_trip()
        print(f"\nlibraries that went to dex and back: {libraries}")
        self.figures["dex_round_trip_failed"] = failed
        for name, file, times in (("dex_convert_warm_ms", "work.dex", 40), ("dex_convert_115kB_ms", "large.dex", 20)):
            dex = self.folder / file
            print(f"{name}: {dex.stat().st_size} bytes")
            self.figures[name] = java.convert_ms(self.folder, dex, times)

    def choices(self) -> None:
        self.figures["java_python_same_choices"] = java.same_choices(self.folder)

    def boots(self) -> None:
        times = self.pick(1, 5)
        with self.up():
            for _ in range(2):
                starts.ready_ms(self.node, "picture", 64, 1)
            image_mb = self.figures["android_image_mb"]
            assert image_mb is not None
            all_ = [boots.units(self.node, image_mb, starts.unit_pss_mb(), 3 * times)]
        all_ += [boots.peers(kind, times) for kind in self.peers()]
        boots.tables(all_)

    def workloads(self) -> None:
        where = "unit on Libdroid, here"
        kinds = self.peers()
        try:
            with workloads.bed(self.folder, self.pick(1, 5), self.is_quick) as bed:
                with self.node.up(bed.there, NODE_ADDRESS):
                    found = workloads.measure(self.node, kinds, bed, where)
                assert self.node.process is not None
                bed.testbed.ended(self.node.process)
        except NoTestbed as why:
            raise Unable(str(why)) from why
        workloads.table(found, bed.size)
        self.figures["mean_gain_over_local"] = statistics.mean(gain for one in found.values() for gain in one.gains(where))


#: What runs, and the figures that come of it.
PARTS: Final[dict[str, tuple[Callable[[Bench], None], tuple[str, ...]]]] = {
    "starts": (
        Bench.starts,
        (
            "java_ready_p50_ms",
            "android_ready_p50_ms",
            "android_pss_mb",
            "call_with_spare_p50_ms",
            "warm_call_p50_ms",
            "peak_vs_jvm",
        ),
    ),
    "spike": (Bench.spike, ("spike_p99_ms", "spike_vs_container")),
    "dex": (Bench.dex, ("dex_round_trip_failed", "dex_convert_warm_ms", "dex_convert_115kB_ms")),
    "choices": (Bench.choices, ("java_python_same_choices",)),
    "boots": (Bench.boots, ()),
    "workloads": (Bench.workloads, ("mean_gain_over_local",)),
}


def run_part(bench: Bench, name: str, is_asked: bool) -> None:
    """Runs it, if it is asked for. Each figure that it leaves null has a reason then."""
    part, figures = PARTS[name]
    reason = f"`--part` leaves out {name}"
    if is_asked:
        try:
            part(bench)
            return
        except (Unable, RuntimeError, OSError, subprocess.SubprocessError) as why:
            # The other parts can be measured all the same.
            reason = f"{type(why).__name__}: {why}"
            print(f"not measured: {name}: {reason}")
    bench.reasons |= {figure: reason for figure in figures if bench.figures[figure] is None}


def main() -> int:
    """Prints the figures; how many miss their bar."""
    options = argparse.ArgumentParser(prog="./bench android", description="functions in Java and for Android, beside others")
    options.add_argument("--lighter", type=Path, required=True)
    options.add_argument("--quick", action="store_true")
    options.add_argument("--part", action="append", choices=PARTS, help="only this part; may be given more than once")
    asked = options.parse_args()
    print(shared.machine.words())
    with tempfile.TemporaryDirectory(prefix="lighter-android-") as place:
        bench = Bench(Path(place), asked.lighter, asked.quick)
        bench.prepare()
        for name in PARTS:
            run_part(bench, name, not asked.part or name in asked.part)
        print()
        for figure, reason in bench.reasons.items():
            print(f"not measured: {figure}: {reason}")
        return shared.figures.report(BARS, bench.figures)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)

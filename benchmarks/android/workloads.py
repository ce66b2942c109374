"""The four workloads on a slow client, and offloaded to a unit, a container and a machine: figure 9 of the paper.

The client has a tenth of a processor, and a link of 50 Mbit/s with a millisecond each way to where the others are. The
first call (I) sends the app and has it made ready; later ones (II) find it there. What the client itself does for a
call, which is to send bytes, is not slowed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import statistics
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from offload.testbed import NODE_ADDRESS, Testbed
from peers import LIBDROID, UNIT, Container, Machine, Speaker, Unable
from shared.node import CALL_SECONDS, Node, bundle
from work import WORKLOADS, apk

#: The client's part of one processor, as in `./bench offload`, and its link.
SHARE: Final = 0.1
LINK_MBITS: Final = 50
DELAY_MS: Final = 1.0
PEER_MB: Final = 1_024
LIMITS: Final = {"time_ms": 120_000, "cpu_ms": 120_000, "memory_bytes": 256 << 20}
#: The workloads' size in a hurry, and else; the same for what a call of an emulated machine may take.
SIZES: Final = ("medium", "large")
EMULATED_SECONDS: Final = (15.0, 300.0)
#: What an emulated machine runs in a hurry: each workload costs it a boot.
EMULATED_QUICKLY: Final = ("Linpack",)
_NEW_NETWORK: Final = 0x4000_0000


@dataclass
class Split:
    """A call in milliseconds, by where they go."""

    transfer: float
    preparation: float
    execution: float

    @property
    def whole(self) -> float:
        return self.transfer + self.preparation + self.execution


@dataclass
class Found:
    """Of one workload: local, and by the name of where it runs the first call and later ones."""

    local_ms: float | None = None
    first: dict[str, Split] = field(default_factory=dict)
    later: dict[str, Split] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    def gains(self, where: str) -> list[float]:
        """What both calls save of the local one, 1 being all of it."""
        splits = [splits[where] for splits in (self.first, self.later) if where in splits]
        return [] if self.local_ms is None else [1 - split.whole / self.local_ms for split in splits]


class Bed:
    """The testbed with what stands on it."""

    def __init__(self, testbed: Testbed, folder: Path, calls: int, is_quick: bool) -> None:
        self.testbed, self.folder, self.calls, self.is_quick = testbed, folder, calls, is_quick
        self.size = SIZES[not is_quick]

    def there(self, command: list[str], **more: Any) -> subprocess.Popen[bytes]:
        """Starts a program where the client's calls go to."""
        return self.testbed.start(self.testbed.node, command, **more)

    def connect(self, host: str, port: int) -> socket.socket:
        """A connection from the client's network."""
        return connected(self.testbed.client, host, port)

    def local(self, workload: str) -> float:
        """A call on the client, whose virtual machine has run a small one before."""
        path = f"{self.folder / 'peer'}:{LIBDROID / 'libdroid.jar'}:{UNIT}:{self.folder / 'workloads.jar'}"
        native = LIBDROID / os.uname().machine / "libdroid.so"
        command = ["java", f"-Dlighterage.libdroid={native}", "-cp", path, "bench.Peer", "-"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        process = self.testbed.start(self.testbed.client, command, **pipes)
        try:
            assert process.stdin is not None and process.stdout is not None
            speaker = Speaker(process.stdin, process.stdout)
            speaker.call(f"workloads.{workload}::small")
            return statistics.median(speaker.call(f"workloads.{workload}::{self.size}")[1] for _ in range(self.calls))
        finally:
            process.kill()
            process.wait()
            self.testbed.ended(process)

    def unit(self, node: Node, workload: str, found: Found, where: str) -> None:
        """An apk is sent, converted and started; later calls find its unit."""
        client = node.client(self.connect)
        name = workload.lower()
        function = {"isolation": "process", "limits": LIMITS, "units": {"reuse_calls": 100_000}}
        image = bundle(f"workloads.{workload}::{self.size}", {"app.apk": apk(self.folder, workload)})
        sent, made_ready = client.deploy(name, function, image)
        call = client.call(name, b"")
        waited = call.queue + call.start
        found.first[where] = Split(sent + call.whole - waited - call.run, made_ready + waited, call.run)
        later = []
        for _ in range(self.calls):
            call = client.call(name, b"")
            waited = call.queue + call.start
            later.append(Split(call.whole - waited - call.run, waited, call.run))
        found.later[where] = _median(later)
        client.close()

    def peer(self, kind: Container | Machine, workload: str, found: Found) -> None:
        """A container or a machine is booted and sent a jar; later calls find it there."""
        seconds = EMULATED_SECONDS[not self.is_quick] if isinstance(kind, Machine) else CALL_SECONDS
        jar = (self.folder / "workloads.jar").read_bytes()
        entry = f"workloads.{workload}::{self.size}"
        if self.is_quick and isinstance(kind, Machine) and workload not in EMULATED_QUICKLY:
            found.reasons.append(f"{workload} in a {kind.name}: left out, because of --quick")
            return
        try:
            with kind.booted(PEER_MB, self.there, NODE_ADDRESS) as booted:
                with booted.speaker(self.connect, seconds) as speaker:
                    whole, loaded = speaker.jar(jar)
                    called, execution, _ = speaker.call(entry)
                    transfer = whole - loaded + called - execution
                    found.first[kind.name] = Split(transfer, booted.boot_ms + loaded, execution)
                    later = [speaker.call(entry) for _ in range(self.calls)]
                self.testbed.ended(booted.process)
            found.later[kind.name] = _median([Split(whole - there, 0, there) for whole, there, _ in later])
        except (Unable, TimeoutError) as why:
            what = f"a call took more than {seconds:g} s" if isinstance(why, TimeoutError) else str(why)
            found.reasons.append(f"{workload} in a {kind.name}: {what}")


def measure(node: Node, kinds: list[Container | Machine], bed: Bed, where: str) -> dict[str, Found]:
    """All of it, one workload after the other."""
    all_ = {workload: Found() for workload in WORKLOADS}
    for workload, found in all_.items():
        found.local_ms = bed.local(workload)
        bed.unit(node, workload, found, where)
        for kind in kinds:
            bed.peer(kind, workload, found)
    return all_


@contextlib.contextmanager
def bed(folder: Path, calls: int, is_quick: bool) -> Iterator[Bed]:
    """The client and its link. Raises the testbed's Unable where they cannot be made."""
    with Testbed(SHARE) as testbed:
        testbed.rate(LINK_MBITS)
        testbed.delay(DELAY_MS)
        source = Path(__file__).parent / "Peer.java"
        subprocess.run(["javac", "--release", "17", "-d", str(folder / "peer"), str(source)], check=True)
        yield Bed(testbed, folder, calls, is_quick)


def connected(space: str, host: str, port: int) -> socket.socket:
    """A connection made in a network namespace: a thread of its own goes there."""
    made: list[socket.socket | Exception] = []

    def make() -> None:
        try:
            with Path(f"/run/netns/{space}").open("rb") as there:
                if ctypes.CDLL(None, use_errno=True).setns(there.fileno(), _NEW_NETWORK) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
            made.append(socket.create_connection((host, port), CALL_SECONDS))
        except OSError as failed:
            made.append(failed)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if isinstance(made[0], Exception):
        raise made[0]
    return made[0]


def table(all_: dict[str, Found], size: str) -> None:
    """Prints them."""
    link = f"{LINK_MBITS} Mbit/s and {DELAY_MS:g} ms each way"
    print(f"\nThe workloads, {size}, after the paper's figure 9.")
    print(f"The client has {SHARE:g} of a processor; its link has {link}.")
    print(f"{'milliseconds':42} {'':4} {'transfer':>10} {'preparation':>12} {'execution':>10} {'whole':>10}")
    for workload, found in all_.items():
        local = "-" if found.local_ms is None else f"{found.local_ms:.0f}"
        print(f"{workload + ': local':42} {'':4} {'':>10} {'':>12} {local:>10} {local:>10}")
        for number, splits in (("I", found.first), ("II", found.later)):
            for where, split in splits.items():
                cells = f"{split.transfer:>10.1f} {split.preparation:>12.1f} {split.execution:>10.1f} {split.whole:>10.1f}"
                print(f"{'    ' + where:42} {number:4} {cells}")
        for reason in found.reasons:
            print(f"not measured: {reason}")


def _median(splits: list[Split]) -> Split:
    parts = zip(*((split.transfer, split.preparation, split.execution) for split in splits), strict=True)
    return Split(*(statistics.median(part) for part in parts))

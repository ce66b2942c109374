"""What we are measured beside: the same Java and Libdroid in a container (crun) and in a machine (QEMU), stock.

```text
  the machine's own JRE, Libdroid, Peer.java ──▶ rootfs/ ── crun run ──▶ container
  Debian's kernel, busybox ───────────────────────┴─ initramfs ── qemu ──▶ machine
```
No image of anybody else's is fetched. The machine runs under KVM where that brings Linux up, and is emulated where not;
`Machine.accelerator` says which.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

from shared import crun
from shared.namespaces import Unable
from shared.node import Connect, Start, plainly, pss_mb

ROOT: Final = Path(__file__).parents[2]
LIBDROID: Final = ROOT / "build/libdroid"
UNIT: Final = ROOT / "sdks/java/unit/lighterage-unit.jar"
PORT: Final = 9_000
#: Parts of a JDK that a JRE does not have.
NOT_JRE: Final = ("jmods", "include", "man", "docs", "legal", "demo", "src.zip", "lib/src.zip")
#: The modules of Debian's kernel that make its virtio network card work. Each needs those before it.
MODULES: Final = (
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "failover",
    "net_failover",
    "virtio_net",
)
CONTAINER_SECONDS: Final = 60.0
INIT: Final = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /dev /tmp
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
for module in {modules}; do /bin/busybox insmod /modules/$module.ko; done
/bin/busybox ip link set lo up
/bin/busybox ip addr add 10.0.2.15/24 dev eth0
/bin/busybox ip link set eth0 up
/bin/busybox ip route add default via 10.0.2.2
exec {command}
"""


class Rootfs:
    """A folder with a JRE, what it needs of the C library, Libdroid and the program that is spoken to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "rootfs"
        java = shutil.which("java")
        if java is None:
            raise Unable("there is no java")
        self.home = Path(java).resolve().parents[1]
        self._copy_java()
        work = folder / "peer"
        source = Path(__file__).parent / "Peer.java"
        subprocess.run(["javac", "--release", "17", "-d", str(work), str(source)], check=True)
        (self.folder / "peer").mkdir()
        subprocess.run(["jar", "--create", "--file", str(self.folder / "peer/peer.jar"), "-C", str(work), "."], check=True)
        machine = os.uname().machine
        for file in (LIBDROID / "libdroid.jar", LIBDROID / machine / "libdroid.so", UNIT):
            shutil.copy(file, self.folder / "peer")
        self._copy_libraries()
        for name in ("proc", "dev", "sys", "tmp"):
            (self.folder / name).mkdir()

    def _copy_java(self) -> None:
        def left_out(folder: str, names: list[str]) -> set[str]:
            inside = Path(folder).relative_to(self.home)
            return {name for name in names if str(inside / name) in NOT_JRE}

        # Links lead to where Debian keeps the settings.
        shutil.copytree(self.home, self.folder / "jre", ignore=left_out, ignore_dangling_symlinks=True)

    def _copy_libraries(self) -> None:
        jre = self.folder / "jre"
        names = ("libjava", "libjli", "libnio", "libnet", "libzip", "libjimage", "libverify", "libextnet", "server/libjvm")
        programs = [jre / "bin/java", self.folder / "peer/libdroid.so", *(jre / f"lib/{name}.so" for name in names)]
        _copy_libraries(programs, self.folder)

    @staticmethod
    def command(*arguments: str) -> list[str]:
        """The virtual machine on Libdroid, in the container or the machine, with no option for a quicker start."""
        path = "/peer/peer.jar:/peer/libdroid.jar:/peer/lighterage-unit.jar"
        return ["/jre/bin/java", "-Dlighterage.libdroid=/peer/libdroid.so", "-cp", path, "bench.Peer", *arguments]

    def bytes(self) -> int:
        """Of all files."""
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())


class Speaker:
    """Speaks to a `bench.Peer`."""

    def __init__(self, to: IO[bytes], from_: IO[bytes]) -> None:
        self._to, self._from = to, from_

    def jar(self, content: bytes) -> tuple[float, float]:
        """Gives it a jar: milliseconds from here, and those that it took there."""
        return self._ask(b"J" + struct.pack(">i", len(content)) + content)[:2]

    def call(self, entry: str) -> tuple[float, float, str]:
        """Runs a method: milliseconds from here, those that it took there, and what came out."""
        return self._ask(b"C" + struct.pack(">H", len(entry)) + entry.encode())

    def _ask(self, request: bytes) -> tuple[float, float, str]:
        began = time.perf_counter()
        self._to.write(request)
        self._to.flush()
        nanoseconds, length = struct.unpack(">qH", self._take(10))
        said = self._take(length).decode()
        return (time.perf_counter() - began) * 1e3, nanoseconds / 1e6, said

    def _take(self, count: int) -> bytes:
        taken = self._from.read(count)
        if len(taken) < count:
            raise RuntimeError("what was spoken to has ended")
        return taken


class Booted:
    """A peer that is up: milliseconds it took, and how to speak to it."""

    def __init__(self, process: subprocess.Popen[bytes], boot_ms: float, address: tuple[str, int], pss: float) -> None:
        self.process, self.boot_ms, self.address, self.pss_mb = process, boot_ms, address, pss

    @contextlib.contextmanager
    def speaker(self, connect: Connect = plainly, seconds: float = 300.0) -> Iterator[Speaker]:
        """A connection to it, each answer within so many seconds."""
        with connect(*self.address) as connection:
            connection.settimeout(seconds)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection.makefile("wb") as to, connection.makefile("rb") as from_:
                yield Speaker(to, from_)


class Container:
    """The rootfs in crun, with the network of whoever starts it."""

    name = "container (crun, stock JVM)"

    def __init__(self, rootfs: Rootfs) -> None:
        crun.program()
        self.rootfs = rootfs
        self._count = 0

    def image_bytes(self) -> int:
        return self.rootfs.bytes()

    @contextlib.contextmanager
    def booted(self, memory_mb: int, start: Start = subprocess.Popen, host: str = "127.0.0.1") -> Iterator[Booted]:
        """One that is up, with at most so much memory. Raises Unable if it does not come up."""
        self._count += 1
        name = f"lighter-bench-{os.getpid()}-{self._count}"
        with tempfile.TemporaryDirectory() as place:
            port = PORT + 1 + self._count
            crun.bundle(Path(place), self.rootfs.folder, Rootfs.command(str(port)))
            began = time.perf_counter()
            group = _memory_group(name, memory_mb)
            command = crun.in_group(group, crun.command("run", "--bundle", place, name))
            process = start(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            try:
                _until_ready(process, CONTAINER_SECONDS)
                boot_ms = (time.perf_counter() - began) * 1e3
                state = subprocess.run(crun.command("state", name), capture_output=True, text=True, check=True).stdout
                yield Booted(process, boot_ms, (host, port), pss_mb(json.loads(state)["pid"]))
            finally:
                subprocess.run(crun.command("kill", name, "KILL"), capture_output=True, check=False)
                process.wait(30)
                subprocess.run(crun.command("delete", "--force", name), capture_output=True, check=False)
                with contextlib.suppress(OSError):
                    group.rmdir()

    def once(self, arguments: list[str]) -> list[str]:
        """The command that runs one container to its end, without a limit."""
        self._count += 1
        place = Path(tempfile.mkdtemp(dir=self.rootfs.folder.parent))
        crun.bundle(place, self.rootfs.folder, arguments)
        return crun.command("run", "--bundle", str(place), f"lighter-bench-{os.getpid()}-{self._count}")


class Machine:
    """The rootfs as the initramfs of Debian's kernel, in QEMU."""

    def __init__(self, rootfs: Rootfs, kernel: Path, seconds: float) -> None:
        """`kernel` has `vmlinuz` and the modules; a boot may take so many seconds."""
        self.seconds = seconds
        busybox = shutil.which("busybox")
        if shutil.which("qemu-system-x86_64") is None:
            raise Unable("qemu-system-x86_64 is not installed (Debian: apt-get install qemu-system-x86)")
        if busybox is None:
            raise Unable("busybox is not installed (Debian: apt-get install busybox)")
        self.kernel = kernel / "vmlinuz"
        self.initramfs = rootfs.folder.parent / "initramfs"
        more = rootfs.folder.parent / "machine"
        (more / "bin").mkdir(parents=True)
        (more / "modules").mkdir()
        shutil.copy(busybox, more / "bin/busybox")
        _copy_libraries([more / "bin/busybox"], more)
        for module in MODULES:
            shutil.copy(kernel / f"{module}.ko", more / "modules")
        init = INIT.format(modules=" ".join(MODULES), command=" ".join(Rootfs.command(str(PORT))))
        (more / "init").write_text(init)
        (more / "init").chmod(0o755)
        _write_initramfs([rootfs.folder, more], self.initramfs)
        self.accelerator = self._accelerator()
        emulated = "KVM" if self.accelerator == "kvm" else "software-emulated"
        self.name = f"virtual machine (QEMU, {emulated})"
        if self.accelerator == "tcg":
            print("The virtual machine is software-emulated: KVM does not bring Linux up here.")

    def _accelerator(self) -> str:
        if os.access("/dev/kvm", os.R_OK | os.W_OK):
            with contextlib.suppress(Unable):
                self.accelerator = "kvm"
                with self.booted(1_024, seconds=min(20.0, self.seconds)):
                    return "kvm"
        return "tcg"

    def image_bytes(self) -> int:
        return self.kernel.stat().st_size + self.initramfs.stat().st_size

    @contextlib.contextmanager
    def booted(
        self, memory_mb: int, start: Start = subprocess.Popen, host: str = "127.0.0.1", seconds: float | None = None
    ) -> Iterator[Booted]:
        """One that is up, with so much memory. Raises Unable if it does not come up."""
        processor = "host" if self.accelerator == "kvm" else "max"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = int(free.getsockname()[1])
        command = ["qemu-system-x86_64", "-M", "q35", "-accel", self.accelerator, "-cpu", processor, "-m", str(memory_mb)]
        command += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"]
        command += ["-netdev", f"user,id=net,hostfwd=tcp:{host}:{port}-:{PORT}"]
        command += ["-device", "virtio-net-pci,netdev=net,romfile="]
        command += ["-kernel", str(self.kernel), "-initrd", str(self.initramfs)]
        command += ["-append", "console=ttyS0 quiet panic=-1 rdinit=/init"]
        began = time.perf_counter()
        process = start(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            _until_ready(process, seconds or self.seconds)
            boot_ms = (time.perf_counter() - began) * 1e3
            yield Booted(process, boot_ms, (host, port), pss_mb(process.pid))
        finally:
            process.kill()
            process.wait(30)


def _memory_group(name: str, memory_mb: int) -> Path:
    """A control group that may have so much memory. Raises Unable where the kernel counts none."""
    for top, limit in ((Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), (Path("/sys/fs/cgroup"), "memory.max")):
        group = top / name
        with contextlib.suppress(OSError):
            group.mkdir(exist_ok=True)
            if (group / limit).exists():
                (group / limit).write_text(str(memory_mb << 20))
                return group
            group.rmdir()
    raise Unable("there is no memory controller to limit a container with")


def _copy_libraries(programs: list[Path], folder: Path) -> None:
    """What these programs are linked with goes to the same places below a folder."""
    found = set()
    for program in programs:
        said = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=False).stdout
        found |= {word for line in said.splitlines() for word in line.split() if word.startswith("/")}
    for library in found:
        if not library.startswith(str(folder)):
            to = folder / library[1:]
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, to)


def _write_initramfs(folders: list[Path], file: Path) -> None:
    """All that is below these folders, as the kernel unpacks it: cpio's "newc" format, one member after the other."""
    number = 0

    def member(out: IO[bytes], name: str, mode: int, content: bytes) -> None:
        nonlocal number
        number += 1
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + "".join(f"{field:08x}" for field in fields).encode() + name.encode() + b"\0"
        for part in (head, content):
            out.write(part + b"\0" * (-len(part) % 4))

    with file.open("wb") as out:
        for folder in folders:
            for place in sorted(folder.rglob("*")):
                is_file = place.is_file()
                content = place.read_bytes() if is_file else b""
                member(out, str(place.relative_to(folder)), place.stat().st_mode, content)
        member(out, "TRAILER!!!", 0, b"")


def cpu_seconds_of_ended() -> float:
    """What children of this program that have ended have computed, with their own."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def kernel() -> Path:
    """The folder of Debian's kernel, as `benchmarks/peers` keeps it. Raises Unable with what was tried."""
    command = [str(ROOT / "benchmarks/peers"), "linux"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip().split("\t")
    if len(found) < 3 or found[1] == "-":
        raise Unable(found[-1] or "benchmarks/peers said nothing of Debian's kernel")
    return Path(found[1])


def _until_ready(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Until it has said the word on a line of its own. Raises Unable with its last words."""
    assert process.stdout is not None and process.stderr is not None
    said = b""
    deadline = time.monotonic() + seconds
    while b"ready\r\n" not in said and b"ready\n" not in said:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
            raise Unable(f"it was not up after {seconds:g} s")
        some = os.read(process.stdout.fileno(), 4_096)
        if not some:
            process.wait(10)
            last = (said + process.stderr.read()).decode(errors="replace").split("\n")
            words = [line.strip() for line in last if line.strip()]
            words = [line for line in words if "panic" in line] or words
            raise Unable(f"it ended: {words[-1][:160] if words else 'without a word'}")
        said += some

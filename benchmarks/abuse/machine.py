"""What a node is put on to be abused: a control group with little memory, and a disk whose power can be cut.

Those who attack and those who measure would be on machines of their own. Here they share the node's: so the first get what
nobody else wants of the processors, and the others are never kept waiting for one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

#: `EXT4_IOC_SHUTDOWN`, and its flag that drops what the journal has not written yet.
SHUTDOWN: Final = 0x8004587D
NO_LOG_FLUSH: Final = 2
#: How long a writer has been stopped before the power goes: the kernel loses a running `fdatasync` sometimes, whoever calls it.
STILL_SECONDS: Final = 0.05


class Unable(Exception):
    """This machine cannot do what an attack needs; says what."""


class Closable(Protocol):
    """What has an end of its own."""

    def close(self) -> None: ...


class Group:
    """A memory control group, of version 1 or 2."""

    def __init__(self, name: str, bytes_max: int) -> None:
        """A group `name` below the one this process is in, for `bytes_max` bytes, swap excluded."""
        self.folder, limit = _place(name)
        try:
            self.folder.mkdir(exist_ok=True)
            (self.folder / limit).write_text(str(bytes_max))
        except OSError as problem:
            raise Unable(f"no control group for memory: {problem}") from problem

    def command(self, command: list[str]) -> list[str]:
        """The same command, run within the group."""
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.folder / "cgroup.procs"), *command]

    def kills(self) -> int:
        """How often the kernel has ended a process of the group, or of one below it, for want of memory."""
        total = 0
        for name in ("memory.oom_control", "memory.events"):
            for path in self.folder.rglob(name):
                with contextlib.suppress(OSError):
                    lines = dict(line.split() for line in path.read_text().splitlines())
                    total += int(lines.get("oom_kill", 0))
        return total

    def close(self) -> None:
        """Ends what is in the group and removes it."""
        for _ in range(50):
            for path in sorted(self.folder.rglob("cgroup.procs"), reverse=True):
                with contextlib.suppress(OSError):
                    for pid in path.read_text().split():
                        os.kill(int(pid), signal.SIGKILL)
            for path in sorted((one for one in self.folder.rglob("*") if one.is_dir()), reverse=True):
                with contextlib.suppress(OSError):
                    path.rmdir()
            with contextlib.suppress(OSError):
                self.folder.rmdir()
            if not self.folder.exists():
                return
            time.sleep(0.1)


class Last:
    """A control group whose processes run where nobody else wants to: programs of an attacker."""

    def __init__(self, name: str) -> None:
        """Where the system has no such group, its priorities alone do what they can."""
        self._folder: Path | None = None
        with contextlib.suppress(OSError, Unable):
            folder, _ = _place(name, "cpu")
            folder.mkdir(exist_ok=True)
            self._folder = folder
            (folder / "cpu.idle").write_text("1")

    def command(self, command: list[str]) -> list[str]:
        """The same command, run only where nobody else wants to; in a session of its own it is weighed by itself."""
        place = str(self._folder / "cgroup.procs") if self._folder else "/dev/null"
        enter = 'echo $$ > "$0"; echo 19 > /proc/self/autogroup; exec "$@"'
        return ["setsid", "chrt", "--idle", "0", "sh", "-c", f"{{ {enter}; }} 2> /dev/null", place, *command]

    def close(self) -> None:
        """Removes it; its processes have ended."""
        if self._folder is not None:
            with contextlib.suppress(OSError):
                self._folder.rmdir()


def cpu_seconds(leaders: set[int]) -> float:
    """CPU time of all processes in the sessions of these, and of what those have waited for."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            words = stat.read_text().rpartition(")")[2].split()
            if int(words[3]) in leaders:
                ticks += sum(int(word) for word in words[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def first_command(command: list[str]) -> list[str]:
    """The same command, as a program that nobody keeps waiting, as far as that is allowed: one that measures."""
    for way in (["chrt", "--rr", "1"], ["nice", "-n", "-15"]):
        with contextlib.suppress(OSError):
            if subprocess.run([*way, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                return [*way, *command]
    return command


def first() -> None:
    """Makes this thread one that nobody keeps waiting, if it may be; what it starts is as everybody else."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))


def _place(name: str, controller: str = "memory") -> tuple[Path, str]:
    """Folder of a new group, and the file that bounds its memory."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, own = line.split(":", 2)
        if controller in controllers.split(","):
            return Path(f"/sys/fs/cgroup/{controller}{own}") / name, "memory.limit_in_bytes"
        if number == "0" and controller in _controllers(own):
            return Path("/sys/fs/cgroup" + own) / name, "memory.max"
    raise Unable(f"no control group for {controller} can be made")


def _controllers(own: str) -> list[str]:
    try:
        return Path(f"/sys/fs/cgroup{own}/cgroup.controllers").read_text().split()
    except OSError:
        return []


class Disk:
    """An ext4 file system in a file, whose power can be cut."""

    def __init__(self, folder: Path, mebibytes: int = 512) -> None:
        self._image = folder / "disk.img"
        self.folder = folder / "disk"
        self.folder.mkdir()
        with self._image.open("wb") as file:
            file.truncate(mebibytes << 20)
        self._run("mkfs.ext4", "-q", "-F", str(self._image))
        self._mount()

    def cut(self, writer: int) -> None:
        """Stops the process `writer`, takes the power away, ends the process and gives the power back."""
        os.kill(writer, signal.SIGSTOP)
        time.sleep(STILL_SECONDS)
        root = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(root, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(root)
        os.kill(writer, signal.SIGKILL)

    def restore(self) -> None:
        """Mounts the disk again, once nobody uses it."""
        for _ in range(100):
            if subprocess.run(["umount", str(self.folder)], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                break
            time.sleep(0.05)
        self._mount()

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], stderr=subprocess.DEVNULL, check=False)

    def _mount(self) -> None:
        self._run("mount", "-o", "loop", str(self._image), str(self.folder))

    @staticmethod
    def _run(*command: str) -> None:
        if shutil.which(command[0]) is None:
            raise Unable(f"{command[0]} is not installed")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unable(f"{command[0]}: {done.stderr.strip()}")


def slow_disk(folder: Path) -> Path:
    """A library that makes each sync take as long as its environment says; preloaded into a node."""
    library = folder / "slow.so"
    compiler = shutil.which("cc")
    if compiler is None:
        raise Unable("no C compiler for a slow disk")
    source = Path(__file__).with_name("slow.c")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return library


@contextlib.contextmanager
def closing_all(*things: Closable) -> Iterator[None]:
    """Closes them, whatever happens."""
    try:
        yield
    finally:
        for thing in things:
            thing.close()

"""The process that loads a function once, inside its jail, and forks a fresh child for each call.

    node ── "fork SLOT READ" + socket, stdout, stderr ──▶ zygote ── fork ──▶ child: confined, says it is ready, waits for work
    node ◀── "ready" · "failed KIND\\nWHY" · "exited SLOT STATUS" ── zygote

It is process 1 of its jail: what a child leaves behind becomes its child, and is killed.
"""

from __future__ import annotations

import array
import contextlib
import faulthandler
import gc
import json
import os
import select
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, Final

from .. import frame
from .confine import Walls, limit_memory
from .link import SMALL_BYTES, Link, aligned, set_current
from .work import Work, blame

#: Where the jail puts the function's code.
CODE: Final = Path("/bundle")
#: Where each child has a folder of its own, by the number of its slot.
SCRATCH: Final = "/scratch"

#: So often code must have run before the interpreter has made all that it makes of it.
REHEARSALS: Final = 20

_MESSAGE_BYTES: Final = 4_096


class Zygote:
    """Forks when it is told to, and tells who ended."""

    def __init__(self, control: socket.socket, work: Work, settings: dict[str, Any]) -> None:
        self._control = control
        self._work = work
        self._calls: int = settings["calls"]
        self._memory_bytes: int | None = settings["memory_bytes"]
        self._walls = Walls()
        self._room = aligned(SMALL_BYTES)
        #: Slots by the process that has them.
        self._children: dict[int, int] = {}
        self._bell = (-1, -1)

    def run(self) -> None:
        # Signals only ring. Once a module has threads, a handler runs in the middle of a fork, whatever this thread blocks: it
        # would find a child whose slot is not written down, and kill it for an orphan.
        bell, ringer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._bell = (bell, ringer)
        signal.set_wakeup_fd(ringer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._control.send(b"ready")
        while True:
            control = self._control.fileno()
            ready, _, _ = select.select([control, bell], [], [])
            if bell in ready:
                os.read(bell, _MESSAGE_BYTES)
                self._reap()
            if control not in ready:
                continue
            message, descriptors = self._receive()
            if not message:
                os._exit(0)
            _, slot, reads = message.split()
            self._fork(int(slot), descriptors, reads == b"1")

    def _receive(self) -> tuple[bytes, list[int]]:
        room = socket.CMSG_SPACE(3 * array.array("i").itemsize)
        message, ancillary, _, _ = self._control.recvmsg(_MESSAGE_BYTES, room, socket.MSG_CMSG_CLOEXEC)
        descriptors = array.array("i")
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
        return message, list(descriptors)

    def _fork(self, slot: int, descriptors: list[int], reads: bool) -> None:
        scratch = f"{SCRATCH}/{slot}"
        self._walls.prepare(scratch)
        _flush()
        child = os.fork()
        if child == 0:
            self._be_child(scratch, descriptors, reads)
        self._children[child] = slot
        for descriptor in descriptors:
            os.close(descriptor)

    def _be_child(self, scratch: str, descriptors: list[int], reads: bool) -> None:
        status = 70
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._control.close()
            for descriptor in self._bell:
                os.close(descriptor)
            for place, descriptor in enumerate(descriptors):
                os.dup2(descriptor, place)
            self._walls.close_in(scratch)
            for descriptor in [*descriptors, *self._walls.rulesets()]:
                os.close(descriptor)
            os.setsid()
            os.chdir(scratch)
            os.environ["TMPDIR"] = tempfile.tempdir = scratch
            _seed()
            if self._memory_bytes is not None:
                limit_memory(self._memory_bytes)
            link = Link(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=0), self._room, reads)
            with contextlib.suppress(Exception):
                self._work.rehearse(1)
            set_current(link)
            link.send(frame.encode(None, kind=frame.REPLY, id=0))
            self._work.serve(link, self._calls)
            status = 0
        except SystemExit:
            status = 0
        except BaseException:
            traceback.print_exc()
            _flush()
        finally:
            os._exit(status)

    def _reap(self) -> None:
        ended = False
        while True:
            try:
                child, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if child == 0:
                break
            slot = self._children.pop(child, None)
            if slot is None:
                continue
            ended = True
            empty(f"{SCRATCH}/{slot}")
            self._control.send(f"exited {slot} {status}".encode())
        if ended:
            self._kill_orphans()

    def _kill_orphans(self) -> None:
        """Processes that ended children have started and left: they are children of process 1 now."""
        for name in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
            if name.isdigit() and int(name) not in self._children and int(name) != os.getpid() and _parent(name) == os.getpid():
                os.kill(int(name), signal.SIGKILL)


def _parent(process: str) -> int:
    try:
        with open(f"/proc/{process}/stat", "rb") as stat:
            return int(stat.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def empty(folder: str) -> None:
    """Removes what a child left in its scratch folder."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)


def _seed() -> None:
    """Children must not draw the same numbers; the standard library sees to its own."""
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed(int.from_bytes(os.urandom(4), "little"))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        stream.flush()


def main() -> None:
    """Started by the jail, with what it needs to know in the environment."""
    settings = json.loads(os.environ.pop("LIGHTERAGE_UNIT"))
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, 0, fileno=0)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    faulthandler.enable(2)
    sys.path.insert(0, str(CODE))
    try:
        work = Work(settings["contract"], settings["entry"], CODE)
    except BaseException as error:
        traceback.print_exc()
        _flush()
        kind = "memory" if isinstance(error, MemoryError) else "trapped"
        control.send(f"failed {kind}\n{blame(error, CODE)}".encode("utf-8", "replace")[:_MESSAGE_BYTES])
        os._exit(1)
    zygote = Zygote(control, work, settings)
    with contextlib.suppress(Exception):
        work.rehearse(REHEARSALS)
    gc.collect()
    gc.freeze()
    zygote.run()

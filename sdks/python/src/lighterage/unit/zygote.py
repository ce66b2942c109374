"""The process that loads a function once, inside its jail, and forks a fresh child for each call.

    node ── "fork SLOT READ" + socket, stdout, stderr ──▶ zygote ── fork ──▶ child: confined, says it is ready, waits for work
    node ◀── "u" ── zygote: on the socket of a child that the system does not let it fork
    node ◀── "ready" · "failed KIND\\nWHY" · "exited SLOT STATUS" ── zygote
    node ── "empty SLOT ALONE" ──▶ zygote ── removes what the child has left ──▶ "emptied SLOT" ──▶ node, which looks for itself

The processes that a child leaves behind become its children, and are killed.
"""

from __future__ import annotations

import array
import contextlib
import faulthandler
import gc
import json
import os
import select
import signal
import socket
import stat
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, Final

from ..travel import frame
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
#: How often a folder is looked into again, when something goes on putting things there; and what is left of children.
_EMPTY_TURNS_MAX: Final = 20_000
_ORPHAN_TURNS_MAX: Final = 20
_ORPHAN_PAUSE: Final = 0.005
_OPEN: Final = 0o700
#: What the node hears in the place of a child that could not be forked.
_UNBORN: Final = b"u"
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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

    def rehearse(self) -> None:
        """Leaves code behind that is quick from its first use."""
        self._work.rehearse(REHEARSALS, self._room)

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
            verb, slot, flag = message.split()
            if verb == b"fork":
                self._fork(int(slot), descriptors, reads=flag == b"1")
            else:
                self._empty(int(slot), alone=flag == b"1")

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
        try:
            child = os.fork()
        except OSError:
            # There are too many processes, or there is too little memory: that is no reason to end other calls.
            with contextlib.suppress(OSError):
                os.write(descriptors[0], _UNBORN)
        else:
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
            # Another unit may have closed it: their user is the same.
            os.chmod(scratch, _OPEN)
            os.chdir(scratch)
            os.environ["TMPDIR"] = tempfile.tempdir = scratch
            _seed()
            if self._memory_bytes is not None:
                limit_memory(self._memory_bytes)
            link = Link(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, fileno=0), self._room, reads)
            with contextlib.suppress(Exception):
                self._work.rehearse(1, self._room)
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
            self._control.send(f"exited {slot} {status}".encode())
        if ended:
            self._kill_orphans()

    def _empty(self, slot: int, alone: bool) -> None:
        """Removes what the child of this slot has left. What cannot be removed the node finds, and gives up the slot.

        Alone: no control group has ended what the child had started. One that forks faster than it is found may go on.
        """
        word = "emptied" if not alone or self._without_orphans() else "kept"
        with contextlib.suppress(OSError):
            empty(f"{SCRATCH}/{slot}")
        self._control.send(f"{word} {slot}".encode())

    def _without_orphans(self) -> bool:
        """Kills what ended children have left, and says whether it is gone."""
        for _ in range(_ORPHAN_TURNS_MAX):
            if self._kill_orphans() == 0:
                return True
            time.sleep(_ORPHAN_PAUSE)
            self._reap()
        return False

    def _kill_orphans(self) -> int:
        """Processes that ended children have started and left: they are children of this process now."""
        found = 0
        for name in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
            if name.isdigit() and int(name) not in self._children and int(name) != os.getpid() and _parent(name) == os.getpid():
                found += 1
                with contextlib.suppress(OSError):
                    os.kill(int(name), signal.SIGKILL)
        return found


def _parent(process: str) -> int:
    try:
        with open(f"/proc/{process}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def empty(folder: str) -> None:
    """Removes what a child left in its scratch folder, and what it left on the folder itself.

    What is in a folder is brought up before the folder is removed: no path is long, however deep they lie, and no more than
    two are open. What may not be entered is opened first; it all belongs to the same user.
    """
    os.chmod(folder, _OPEN)
    root = os.open(folder, _FOLDER)
    try:
        for _ in range(_EMPTY_TURNS_MAX):
            names = os.listdir(root)
            if not names:
                break
            for name in names:
                _remove(root, name)
        os.utime(root, ns=(0, 0))
    finally:
        os.close(root)


def _remove(root: int, name: str) -> None:
    if not stat.S_ISDIR(os.stat(name, dir_fd=root, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=root)
        return
    os.chmod(name, _OPEN, dir_fd=root)
    folder = os.open(name, _FOLDER, dir_fd=root)
    try:
        for inner in os.listdir(folder):
            if stat.S_ISDIR(os.stat(inner, dir_fd=folder, follow_symlinks=False).st_mode):
                os.chmod(inner, _OPEN, dir_fd=folder)
                os.rename(inner, os.urandom(16).hex(), src_dir_fd=folder, dst_dir_fd=root)
            else:
                os.unlink(inner, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=root)


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
    # Who attaches to a child has it say where it is: to its log, and it goes on.
    faulthandler.register(signal.SIGUSR2, 2, all_threads=True)
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
        zygote.rehearse()
    gc.collect()
    gc.freeze()
    zygote.run()

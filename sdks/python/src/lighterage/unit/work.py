"""One piece of work in a unit: the event is handed to the function, what it returns or raises becomes a frame."""

from __future__ import annotations

import importlib
import inspect
import socket
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .. import here
from ..travel import calls, frame
from ..travel.classes import Classes
from ..travel.frame import Buffer, Frame
from .api import Event, Failure, event_in
from .link import REPLY_META, HostGone, Link

#: Characters of what is said in one line about an exception.
WORDS_MAX = 4_000
#: Of what keeps a bundle from being loaded: characters of its own words, of a line that led to it, and such lines.
BLAME_WORDS_MAX = 800
BLAME_LINE_MAX = 240
BLAME_LINES_MAX = 4
#: Id of a reply that only says where the reply lies: in so many places at most, and so large at least.
LENT = 2
LENT_PLACES_MAX = 64
LENT_BYTES_MIN = 256 << 10
#: Bytes of a rehearsed piece of work, and of its reply.
REHEARSAL_BYTES = 4 << 10


class Work:
    """The function of a bundle, loaded."""

    def __init__(self, contract: str, entry: str, folder: Path) -> None:
        here.enter_unit()
        self._function = calls.find(entry)
        if inspect.iscoroutinefunction(self._function):
            # Once here, and not in every child.
            importlib.import_module("asyncio")
        self._classes = Classes(modules_of(folder))
        self._handle = {"event": self._event, "call": self._call}[contract]
        #: What a reply lies in that was lent and not sent: it stays there until there is other work, or the end.
        self._lent: list[frame.Piece] = []
        self._rehearsal = {"event": _some_event, "call": _some_call}[contract]()

    def serve(self, link: Link, calls: int) -> None:
        """Does `calls` pieces of work, one after the other. Then the host ends this process: to end by itself takes the
        processor for a millisecond, at the very moment when somebody waits for the reply.
        """
        for _ in range(calls):
            self._serve_one(link, self._function, link.reads)
        link.wait_for_end()

    def rehearse(self, times: int, room: memoryview) -> None:
        """Does work that is nobody's, from a socket and back to it, with a function that does nothing, in the memory that the
        real work will come to.

        In the zygote it leaves code behind that is quick from its first use; in a child, memory of its own in place of what
        it shares with the zygote. What is copied now is not copied while somebody waits.
        """
        host, unit = socket.socketpair()
        with host, unit:
            link = Link(unit, room)
            for _ in range(times):
                host.sendmsg(self._rehearsal)
                self._serve_one(link, _rehearsed)
                host.recv(REHEARSAL_BYTES)

    def _serve_one(self, link: Link, function: Callable[..., Any], lends: bool = False) -> None:
        work = link.receive()
        # There is more work, so the node has what the last reply lay in.
        self._lent = []
        pieces = self._outcome(work, function)
        _flush()
        places = _places(pieces) if lends and frame.said_bytes(pieces) >= LENT_BYTES_MIN else None
        if places is not None:
            self._lent, pieces = pieces, frame.encode(places, kind=frame.REPLY, id=LENT)
        link.send(pieces)

    def _outcome(self, work: Frame, function: Callable[..., Any]) -> list[frame.Piece]:
        try:
            return self._handle(work, function)
        except HostGone:
            raise
        except Failure as said:
            failure = _failure(said.kind, str(said))
        except MemoryError:
            traceback.print_exc()
            failure = _failure("memory", "MemoryError")
        except RecursionError as error:
            failure = _failure("stack", str(error))
        except SystemExit as error:
            failure = _failure("exited", f"SystemExit({error.code!r})")
        except BaseException as error:
            traceback.print_exc()
            failure = _failure("trapped", f"{type(error).__qualname__}: {error}")
        return frame.encode(failure, kind=frame.FAILURE, id=work.id)

    def _event(self, work: Frame, function: Callable[..., Any]) -> list[frame.Piece]:
        reply = calls.run(function, [event_in(work, frame.CALL)], {})
        if reply is None:
            reply = b""
        body = Buffer(memoryview(reply.encode() if isinstance(reply, str) else reply).cast("B"))
        return frame.encode(body, kind=frame.REPLY, id=work.id)

    def _call(self, work: Frame, function: Callable[..., Any]) -> list[frame.Piece]:
        classes, data = self._classes, work.body["data"].data
        began = time.perf_counter()
        decoded = ran = None
        raised = False
        try:
            call = calls.read_call(data, classes)
            decoded = time.perf_counter()
            value = calls.run_call(function, call, classes)
            ran = time.perf_counter()
            pieces = calls.write_reply(value, classes, call)
        except (HostGone, Failure, MemoryError):
            # Memory is the unit's, not the function's: another place may have more.
            raise
        except BaseException as error:
            ran = ran or time.perf_counter()
            raised, pieces = True, calls.write_raised(error, classes)
        decoded = decoded or ran
        meta = REPLY_META.pack(decoded - began, ran - decoded, time.perf_counter() - ran, raised)
        return frame.assemble(meta, [frame.Pieces(tuple(pieces))], kind=frame.REPLY, id=work.id)


def blame(error: BaseException, folder: Path) -> str:
    """An exception in one line, with the innermost of the bundle's own lines that led to it: a user's, not Python's."""
    lines = [
        f"{Path(frame.filename).relative_to(folder)}:{frame.lineno}: {frame.line or ''}"
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(folder)
    ]
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_relative_to(folder):
        lines.append(f"{Path(error.filename).relative_to(folder)}:{error.lineno}: {(error.text or '').strip()}")
    words = f"{type(error).__qualname__}: {error}"[:BLAME_WORDS_MAX]
    return f"{words}, at {' > '.join(line[:BLAME_LINE_MAX] for line in lines[-BLAME_LINES_MAX:])}" if lines else words


def _failure(kind: str, message: str) -> dict[str, str]:
    return {"kind": kind, "message": message[:WORDS_MAX]}


def _places(pieces: list[frame.Piece]) -> list[list[int]] | None:
    """Where the pieces lie in this process's memory; none where they are too many."""
    views = [np.frombuffer(piece, np.uint8) for piece in pieces if len(piece)]
    if len(views) > LENT_PLACES_MAX:
        return None
    return [[view.__array_interface__["data"][0], view.nbytes] for view in views]


def _rehearsed(*arguments: Any, **_: Any) -> Any:
    return b"" if isinstance(arguments[0], Event) else arguments[0]


def _some_call() -> list[frame.Piece]:
    """Of what calls mostly hold."""
    call = calls.write_call(([np.zeros(4), 1, 2.5, "text", b"bytes", (True, None)],), {"name": {"key": [1]}})
    return frame.encode({"data": frame.Pieces(tuple(call))}, kind=frame.CALL, id=1)


def _some_event() -> list[frame.Piece]:
    record = {"id": "1", "source": "/", "type": "rehearsal", "time-ms": 0, "attributes": [["name", "value"]], "attempt": 1}
    return frame.encode({**record, "data": Buffer(memoryview(b"data"))}, kind=frame.CALL, id=1)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue


def modules_of(folder: Path) -> list[str]:
    """The modules of a bundle, by the names they are imported under."""
    names = []
    for path in sorted(folder.rglob("*.py")):
        parts = list(path.relative_to(folder).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        if parts:
            names.append(".".join(parts))
    return names

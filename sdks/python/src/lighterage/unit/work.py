"""One piece of work in a unit: the event is handed to the function, what it returns or raises becomes a frame."""

from __future__ import annotations

import importlib
import inspect
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from .. import calls, frame, here
from ..frame import Buffer
from ..travel import Classes
from .api import Failure, event_of
from .link import HostGone, Link

#: Characters of what is said in one line about an exception.
WORDS_MAX = 4_000
#: Of what keeps a bundle from being loaded: characters of its own words, of a line that led to it, and such lines.
BLAME_WORDS_MAX = 800
BLAME_LINE_MAX = 240
BLAME_LINES_MAX = 4


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

    def serve(self, link: Link, calls: int) -> None:
        """Does `calls` pieces of work, one after the other."""
        for _ in range(calls):
            work = link.receive()
            body, kind = self._outcome(work.body)
            _flush()
            link.send(frame.encode(body, kind=kind, id=work.id))

    def _outcome(self, record: dict[str, Any]) -> tuple[Any, int]:
        try:
            return self._handle(record), frame.REPLY
        except HostGone:
            raise
        except Failure as said:
            return _failure(said.kind, str(said)), frame.FAILURE
        except MemoryError:
            traceback.print_exc()
            return _failure("memory", "MemoryError"), frame.FAILURE
        except RecursionError as error:
            return _failure("stack", str(error)), frame.FAILURE
        except SystemExit as error:
            return _failure("exited", f"SystemExit({error.code!r})"), frame.FAILURE
        except BaseException as error:
            traceback.print_exc()
            return _failure("trapped", f"{type(error).__qualname__}: {error}"), frame.FAILURE

    def _event(self, record: dict[str, Any]) -> Any:
        record["data"] = record["data"].data
        reply = calls.run(self._function, [event_of(record)], {})
        if reply is None:
            reply = b""
        return Buffer(memoryview(reply.encode() if isinstance(reply, str) else reply).cast("B"))

    def _call(self, record: dict[str, Any]) -> Any:
        classes, data = self._classes, record["data"].data
        began = time.perf_counter()
        decoded = ran = None
        raised = False
        try:
            call = calls.read_call(data, classes)
            decoded = time.perf_counter()
            value = calls.run_call(self._function, call, classes)
            ran = time.perf_counter()
            pieces = calls.write_reply(value, classes, call)
        except (HostGone, Failure):
            raise
        except BaseException as error:
            ran = ran or time.perf_counter()
            raised, pieces = True, calls.write_raised(error, classes)
        decoded = decoded or ran
        timing = {"decode": decoded - began, "run": ran - decoded, "encode": time.perf_counter() - ran}
        return {"data": frame.Pieces(tuple(pieces)), "timing": timing, "raised": raised}


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

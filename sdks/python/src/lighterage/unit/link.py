"""Frames between a unit and its host, one after another on one socket.

    host ── call ──▶ unit            the work
    unit ── call ──▶ host ── reply ──▶ unit    what it asks meanwhile
    unit ── reply or failure ──▶ host          the work's end
"""

from __future__ import annotations

import contextlib
import mmap
import socket
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from .. import frame
from ..frame import Buffer, Frame, Limits, Piece

#: Frames up to this size are received at one go, in memory that is there before the call.
SMALL_BYTES: Final = 64 << 10
#: Bytes of a large page.
HUGE_BYTES: Final = 2 << 20
#: The host is trusted to keep to the function's own limits.
LIMITS: Final = Limits(total_bytes=1 << 40, values=1 << 20)
#: Pieces given to one system call.
PIECES_MAX: Final = 512

class HostFailure(Exception):
    """What the host says to a question it does not answer."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


class HostGone(SystemExit):
    """The host closed the socket: nobody waits for this unit any more."""


class Link:
    """The unit's end of the socket."""

    def __init__(self, sock: socket.socket, room: memoryview) -> None:
        self._socket = sock
        self._room = room
        self._asked = 1

    def receive(self) -> Frame:
        """The next frame; its buffers are views of memory that is valid until the next one is received."""
        room, have = self._room, 0
        while have < frame.HEADER_BYTES:
            have += self._receive_into(room[have:])
        total = int.from_bytes(room[8:16], "little")
        if total > room.nbytes:
            large = aligned(total)
            large[:have] = room[:have]
            room = large
        while have < total:
            have += self._receive_into(room[have:total])
        return frame.decode(room[:total], LIMITS)

    def _receive_into(self, room: memoryview) -> int:
        got = self._socket.recv_into(room)
        if got == 0:
            raise HostGone
        return got

    def send(self, pieces: Sequence[Piece]) -> None:
        left: list[Piece] = [memoryview(piece) for piece in pieces]
        while left:
            sent = self._socket.sendmsg(left[:PIECES_MAX])
            while left and sent >= len(left[0]):
                sent -= len(left[0])
                left.pop(0)
            if sent:
                left[0] = memoryview(left[0])[sent:]

    def ask(self, verb: str, arguments: list[Any]) -> Any:
        """Asks the host and waits for its answer."""
        self._asked += 1
        self.send(frame.encode({"op": verb, "args": arguments}, kind=frame.CALL, id=self._asked))
        answer = self.receive()
        if answer.id != self._asked:
            raise HostFailure("unavailable", "the host answered another question")
        if answer.kind == frame.FAILURE:
            raise HostFailure(answer.body["kind"], answer.body["message"])
        return plain(answer.body)

    def tell(self, verb: str, arguments: list[Any]) -> None:
        """Tells the host what it does not answer."""
        self.send(frame.encode({"op": verb, "args": arguments}, kind=frame.CALL, id=0))


def plain(value: Any) -> Any:
    """A value whose buffers are bytes of its own."""
    if isinstance(value, Buffer):
        return bytes(value.data)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def aligned(count: int) -> memoryview:
    """Memory whose first byte is at a multiple of the frame's alignment."""
    if count >= HUGE_BYTES:
        # In large pages, which the kernel aligns by the length: a child's memory is new, and each page of it a fault.
        large = mmap.mmap(-1, -(-count // HUGE_BYTES) * HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(AttributeError, OSError):
            large.madvise(mmap.MADV_HUGEPAGE)
        return memoryview(large)[:count]
    memory = np.empty(count + frame.ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % frame.ALIGNMENT
    return memory.data[start : start + count]


_current: Link | None = None


def set_current(link: Link) -> None:
    global _current  # noqa: PLW0603 - a process is one unit
    _current = link


def current() -> Link:
    """The link of this unit."""
    if _current is None:
        raise RuntimeError("this is no unit: lighterage.unit works only in code that a node runs")
    return _current

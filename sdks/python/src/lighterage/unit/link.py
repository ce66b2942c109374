"""Frames between a unit and its host, one after another on one socket.

host ── call ──▶ unit            the work
unit ── call ──▶ host ── reply ──▶ unit    what it asks meanwhile
unit ── reply or failure ──▶ host          the work's end
"""

from __future__ import annotations

import array
import contextlib
import mmap
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..travel import frame
from ..travel.frame import Buffer, Frame, Limits, Piece

#: Frames up to this size are received at one go, in memory that is there before the call.
SMALL_BYTES: Final = 64 << 10
#: Bytes of a large page.
HUGE_BYTES: Final = 2 << 20
#: The host is trusted to keep to the function's own limits.
LIMITS: Final = Limits(total_bytes=1 << 40, values=1 << 20)
#: Room for one descriptor beside the first bytes of a frame, and for what says that it is one.
_BESIDE_BYTES: Final = 64
#: Pieces given to one system call.
PIECES_MAX: Final = 512
#: What stands between the header and the data in a frame with the work of a call: a table of one buffer after its length,
#: and the meta of `{"data": Buffer}`. The host writes no other, and the data follows at the next multiple of the alignment.
_CALL_REST: Final = bytes(8) + b"\x08\x01\0\0\0\x04\0\0\0data\x0a\0\0\0\0"
_CALL_AT: Final = frame.HEADER_BYTES + 8
_CALL_FRONT: Final = _CALL_AT + len(_CALL_REST)
_CALL_DATA: Final = _CALL_FRONT + -_CALL_FRONT % frame.ALIGNMENT


class _ReplyMeta:
    """The meta of a call's reply: `{"data": buffer 0, "timing": {"decode", "run", "encode"}, "raised"}`. It is the same in
    every reply but for four values.
    """

    def __init__(self) -> None:
        def key(name: bytes) -> bytes:
            return len(name).to_bytes(4, "little") + name

        parts = (
            b"\x08\x03\0\0\0" + key(b"data") + b"\x0a\0\0\0\0" + key(b"timing") + b"\x08\x03\0\0\0" + key(b"decode") + b"\x04",
            key(b"run") + b"\x04",
            key(b"encode") + b"\x04",
            key(b"raised"),
        )
        self._parts = parts
        self._struct = struct.Struct("<" + "d".join(f"{len(part)}s" for part in parts) + "B")

    def pack(self, decode: float, run: float, encode: float, raised: bool) -> bytes:
        head, run_key, encode_key, raised_key = self._parts
        last = frame.TRUE if raised else frame.FALSE
        return self._struct.pack(head, decode, run_key, run, encode_key, encode, raised_key, last)


REPLY_META: Final = _ReplyMeta()


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

    def __init__(self, sock: socket.socket, room: memoryview, reads: bool = False) -> None:
        self._socket = sock
        self._room = room
        self._asked = 1
        #: Whether the host can read this process's memory.
        self.reads = reads

    def receive(self) -> Frame:
        """The next frame; its buffers are views of memory that is valid until the next one is received."""
        room, (have, beside) = self._room, self._begin()
        while have < frame.HEADER_BYTES:
            have += self._receive_into(room[have:])
        total = int.from_bytes(room[8:16], "little")
        if beside:
            while have < total:
                have += self._receive_into(room[have:total])
            room = _mapped(beside, frame.decode(room[:total]))
            have = total = room.nbytes
        if total > room.nbytes:
            large = aligned(total)
            large[:have] = room[:have]
            room = large
        while have < total:
            have += self._receive_into(room[have:total])
        if total >= _CALL_DATA and room[_CALL_AT:_CALL_FRONT] == _CALL_REST and room[5] == frame.CALL:
            # The work of a call, which is read often: its own bytes are checked where they are read.
            data = Buffer(room[_CALL_DATA:total])
            return Frame(frame.CALL, int.from_bytes(room[16:24], "little"), {"data": data})
        return frame.decode(room[:total], LIMITS)

    def wait_for_end(self) -> None:
        """Waits for the host to end this process, which it does once it has the reply."""
        with contextlib.suppress(OSError):
            while self._socket.recv_into(self._room):
                continue

    def _begin(self) -> tuple[int, list[tuple[int, int, bytes]]]:
        """The first bytes of a frame, and what came beside them."""
        got, beside, _, _ = self._socket.recvmsg_into([self._room], _BESIDE_BYTES, socket.MSG_CMSG_CLOEXEC)
        if got == 0:
            raise HostGone
        return got, beside

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


def _mapped(beside: list[tuple[int, int, bytes]], said: Frame) -> memoryview:
    """The frame that is not sent but lent: it lies in the memory that came with what was `said`, and so many bytes are its
    own. A page of it that is written to is this process's from then on.
    """
    descriptors = array.array("i")
    for level, kind, data in beside:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(data)
    (descriptor,) = descriptors
    try:
        rights = mmap.PROT_READ | mmap.PROT_WRITE
        return memoryview(mmap.mmap(descriptor, said.body, flags=mmap.MAP_PRIVATE, prot=rights))
    finally:
        os.close(descriptor)


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

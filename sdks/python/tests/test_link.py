"""The unit's end of its socket: what it reads and writes by short ways is what the frame says."""

import socket
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from lighterage.travel import frame
from lighterage.unit import link
from lighterage.unit import work as unit_work


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, link.Link]]:
    """The host's end, and the unit's."""
    host, unit = socket.socketpair()
    with host, unit:
        yield host, link.Link(unit, link.aligned(link.SMALL_BYTES))


def joined(pieces: list[frame.Piece]) -> bytes:
    return b"".join(bytes(piece) for piece in pieces)


@pytest.mark.parametrize("data", [b"", b"x", b"y" * 1_000, b"z" * 300_000])
def test_the_work_of_a_call_is_read_as_the_frame_has_it(ends: tuple[socket.socket, link.Link], data: bytes) -> None:
    host, unit = ends
    whole = joined(frame.encode({"data": frame.Buffer(memoryview(data))}, kind=frame.CALL, id=7))
    sending = threading.Thread(target=host.sendall, args=(whole,))
    sending.start()
    found = unit.receive()
    sending.join()
    wanted = frame.decode(whole)
    assert (found.kind, found.id, bytes(found.body["data"].data)) == (wanted.kind, wanted.id, data)


@pytest.mark.parametrize(
    "body", [{"data": 1}, {"date": frame.Buffer(memoryview(b""))}, {"data": frame.Buffer(memoryview(b"x")), "id": "1"}, None]
)
def test_what_is_no_call_is_read_in_the_long_way(ends: tuple[socket.socket, link.Link], body: object) -> None:
    host, unit = ends
    for kind in (frame.CALL, frame.REPLY):
        whole = joined(frame.encode(body, kind=kind, id=7))
        host.sendall(whole)
        assert unit.receive() == frame.decode(whole)


@pytest.mark.parametrize("raised", [False, True])
def test_the_meta_of_a_reply_is_that_of_the_frame(raised: bool) -> None:
    timing = {"decode": 0.5, "run": 1e9, "encode": -0.0}
    body = {"data": frame.Buffer(memoryview(b"data")), "timing": timing, "raised": raised}
    meta = link.REPLY_META.pack(*timing.values(), raised)
    short = frame.assemble(meta, [memoryview(b"data")], kind=frame.REPLY, id=3)
    assert joined(short) == joined(frame.encode(body, kind=frame.REPLY, id=3))


def test_a_reply_is_lent_as_it_would_be_sent() -> None:
    """Read at the places that the host is told, the bytes are those of the frame."""
    import ctypes

    pieces = frame.encode([np.ones(10).data.cast("B"), b"", b"text"], lower=frame.Buffer)
    places = unit_work._places(pieces)
    assert places is not None
    assert b"".join(ctypes.string_at(address, count) for address, count in places) == joined(pieces)
    assert unit_work._places([b"x"] * 65) is None

"""The unit's end of its socket: what it reads and writes by short ways is what the frame says."""

import os
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


@pytest.mark.parametrize("size", [0, 1, 5_000_000])
def test_work_that_is_lent_is_read_as_if_it_was_sent(ends: tuple[socket.socket, link.Link], size: int) -> None:
    host, unit = ends
    data = np.arange(size, dtype=np.uint8)
    whole = joined(frame.encode({"data": frame.Buffer(data.data)}, kind=frame.CALL, id=7))
    said = joined(frame.encode(len(whole), kind=frame.CALL, id=unit_work.LENT))
    arena = os.memfd_create("arena")
    before = len(os.listdir("/proc/self/fd"))
    os.write(arena, whole + b"more of it")
    for _ in range(2):
        socket.send_fds(host, [said], [arena])
        found = unit.receive()
        assert (found.kind, found.id) == (frame.CALL, 7)
        own = np.frombuffer(found.body["data"].data, np.uint8)
        assert np.array_equal(own, data) and own.ctypes.data % frame.ALIGNMENT == 0
        # What the unit writes stays its own.
        own[:] = 0
        assert os.pread(arena, len(whole), 0) == whole
        del found, own
        assert len(os.listdir("/proc/self/fd")) == before
    os.close(arena)


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


def test_what_was_lent_stays_until_there_is_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit that serves several calls lends each large reply, and lets it go when the next call is there."""
    import ctypes
    import weakref

    results: list[weakref.ref[np.ndarray]] = []  # type: ignore[type-arg]

    def reply(_work: frame.Frame, _function: object) -> list[frame.Piece]:
        assert all(result() is None for result in results), "the node has what the last reply lay in"
        result = np.full(unit_work.LENT_BYTES_MIN, len(results) + 1, np.uint8)
        results.append(weakref.ref(result))
        pieces = frame.encode(frame.Buffer(result.data), kind=frame.REPLY, id=1)
        assert frame.said_bytes(pieces) == frame.total_bytes(pieces)
        return pieces

    served = unit_work.Work.__new__(unit_work.Work)
    served._function, served._lent = print, []
    monkeypatch.setattr(served, "_outcome", reply)
    host, sock = socket.socketpair()
    with host, sock:
        serving = threading.Thread(
            target=served.serve, args=(link.Link(sock, link.aligned(link.SMALL_BYTES), reads=True), 3), daemon=True
        )
        serving.start()
        for number in range(1, 4):
            host.sendmsg(frame.encode(None, kind=frame.CALL, id=1))
            said = frame.decode(host.recv(4_096))
            assert said.id == unit_work.LENT
            lies = b"".join(ctypes.string_at(address, count) for address, count in said.body)
            assert frame.decode(lies).body.data == bytes([number]) * unit_work.LENT_BYTES_MIN
        host.shutdown(socket.SHUT_WR)
        serving.join()

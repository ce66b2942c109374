"""HTTP as nodes and what stands before them speak it: every way a reply can be cut into pieces, late, wrong or missing."""

import contextlib
import itertools
import socket
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lighterage.errors import NodeUnreachable, ReplyBroken, TimeIsUp
from lighterage.places import wire
from lighterage.places.wire import Api, Cancel, Cancelled
from proxy import Hole

OK = b"HTTP/1.1 200 OK\r\nserver-timing: queue;dur=1.5, run;dur=20\r\ncontent-length: 5\r\n\r\nhello"


class Scripted:
    """A server that sends, for each request of a connection, the pieces it was given."""

    def __init__(self, *replies, pause=0.0, reads=True):
        self.requests = []
        self.connections = 0
        self._replies, self._pause, self._reads = list(replies), pause, reads
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection):
        with connection:
            while self._replies:
                if self._reads and not self._read(connection):
                    return
                reply = self._replies.pop(0)
                if reply is None:
                    return
                for piece in reply if isinstance(reply, list) else [reply]:
                    connection.sendall(piece)
                    time.sleep(self._pause)
            time.sleep(0.05 if self._reads else 1)

    def _read(self, connection):
        data = b""
        while b"\r\n\r\n" not in data:
            more = connection.recv(65_536)
            if not more:
                return False
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        while len(body) < length:
            body += connection.recv(65_536)
        self.requests.append((head, body))
        return True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.close()


def get(server, **options):
    return Api(server.url, "lighter_t").request("GET", "/x", deadline=time.monotonic() + 3, **options)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, len(OK) - 1), max_size=6, unique=True))
def test_a_reply_may_come_in_any_pieces(cuts):
    ends = [0, *sorted(cuts), len(OK)]
    with Scripted([OK[start:end] for start, end in itertools.pairwise(ends)], pause=0.001) as server:
        reply = get(server)
    assert (reply.status, bytes(reply.body)) == (200, b"hello")
    assert reply.timing == {"queue": 0.0015, "run": 0.02}


def test_a_request_is_sent_whole_from_its_pieces():
    array = np.arange(300_000.0)
    with Scripted(OK) as server:
        Api(server.url, "lighter_t").request("POST", "/a", [b"head", array.data, bytearray(b""), b"tail"], content_type="x/y")
        head, body = server.requests[0]
    assert body == b"head" + array.tobytes() + b"tail"
    assert head.startswith(b"POST /a HTTP/1.1\r\nhost: 127.0.0.1:")
    assert b"authorization: Bearer lighter_t" in head and b"content-type: x/y" in head


def test_a_connection_is_used_again_and_a_stale_one_is_not():
    with Scripted(OK, OK, OK) as server:
        api = Api(server.url)
        api.request("GET", "/1")
        api.request("GET", "/2")
        assert server.connections == 1
        time.sleep(0.0)
        api._kept[0].socket.shutdown(socket.SHUT_RDWR)
        assert api.request("GET", "/3").status == 200
        assert server.connections == 2


def test_a_connection_that_ends_as_it_is_used_is_opened_anew():
    with Scripted(OK, None, OK) as server:
        api = Api(server.url)
        api.request("GET", "/1")
        assert bytes(api.request("GET", "/2").body) == b"hello"
        assert [head.split(b" ")[1] for head, _ in server.requests] == [b"/1", b"/2", b"/2"]


def test_chunks_are_joined_and_a_continue_is_passed_over():
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4;x=y\r\nwiki\r\n5\r\npedia\r\n0\r\n\r\n"
    with Scripted([chunked[:50], chunked[50:60], chunked[60:]], b"HTTP/1.1 100 Continue\r\n\r\n" + OK, pause=0.01) as server:
        assert bytes(get(server).body) == b"wikipedia"
        assert bytes(get(server).body) == b"hello"


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel", "broke off in its reply"),
        (b"HTTP/1.1 200 OK\r\ncontent-len", "broke off in the head"),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", "how long"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\nhello", "how long"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhello", "more than it announced"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "broken chunk"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000, "bytes of headers"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 999999999999999\r\n\r\nhello", "announces a reply of 999999999999999"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nhello", "how long"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nfffffffffff\r\n", "more than"),
        (b"220 mail.example.org ESMTP\r\n\r\n", "does not speak HTTP"),
        (None, "instead of answering"),
    ],
)
def test_what_is_no_reply_says_what_is_wrong(reply, says):
    with Scripted([reply] if reply else None) as server, pytest.raises(ReplyBroken, match=says) as caught:
        get(server)
    assert caught.value.code == "L8002"


def test_a_reply_before_the_whole_request_is_heard():
    refusal = b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"
    listener = socket.create_server(("127.0.0.1", 0))

    def refuse():
        connection, _ = listener.accept()
        connection.recv(1_000)
        connection.sendall(refusal)
        connection.shutdown(socket.SHUT_WR)
        time.sleep(0.3)
        connection.close()

    threading.Thread(target=refuse, daemon=True).start()
    api = Api(f"http://127.0.0.1:{listener.getsockname()[1]}")
    # The refusal may be lost where the connection is reset: the error is typed all the same.
    with contextlib.suppress(ReplyBroken):
        assert api.request("POST", "/", [bytes(50_000_000)], deadline=time.monotonic() + 5).status == 413
    assert not api._kept
    listener.close()


def test_time_is_up_wherever_the_other_side_stops():
    for replies, reads in (([[]], True), ([[OK[:30]]], True), ([[OK[:-2]]], True), ([[]], False)):
        with Scripted(*replies, reads=reads, pause=0) as server:
            began = time.monotonic()
            with pytest.raises((TimeIsUp, ReplyBroken)):
                Api(server.url).request("POST", "/", [bytes(30_000_000)], deadline=began + 0.15)
            assert time.monotonic() - began < 1


def test_a_request_can_be_cancelled_from_another_thread():
    with Scripted([], reads=False) as server:
        cancel = Cancel()
        threading.Timer(0.1, cancel.cancel).start()
        began = time.monotonic()
        with pytest.raises(Cancelled):
            Api(server.url).request("POST", "/", [bytes(1_000)], cancel=cancel)
        assert time.monotonic() - began < 0.9
        with pytest.raises(Cancelled):
            Api(server.url).request("GET", "/", cancel=cancel)


@pytest.mark.parametrize("stage", ["connection", "TLS", "proof"])
def test_a_request_that_waits_for_its_connection_can_be_cancelled(stage):
    """Nobody knew of a connection that was being opened: the request waited for three seconds, cancelled or not."""
    # The system takes connections for a server that does not, and nothing is said on them.
    with Hole() if stage == "connection" else socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.port if stage == "connection" else silent.getsockname()[1]
        api = Api(f"http{'s' * (stage == 'TLS')}://127.0.0.1:{port}", "lighter_t", proves=stage == "proof")
        cancel, seen = Cancel(), []

        def end():
            seen.append((cancel.is_waited_for, cancel.sending()))
            cancel.cancel()

        threading.Timer(0.2, end).start()
        began = time.monotonic()
        with pytest.raises(Cancelled):
            api.request("GET", "/", cancel=cancel)
        assert time.monotonic() - began < 1.5
        assert seen == [(True, None)] and not cancel.is_busy


def test_a_connection_has_no_more_time_than_its_request():
    with Hole() as hole:
        began = time.monotonic()
        with pytest.raises(NodeUnreachable, match="timed out"):
            Api(hole.url).request("GET", "/", deadline=began + 0.2)
        assert 0.1 < time.monotonic() - began < 1.5


def test_the_next_address_of_a_host_is_tried(monkeypatch):
    with Scripted(OK) as server:
        good = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", int(server.url.rpartition(":")[2])))
        bad = (*good[:4], ("127.0.0.1", 1))
        unknown = (99, *good[1:])
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [unknown, bad, good])
        assert bytes(get(server).body) == b"hello"
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [unknown, bad])
        with pytest.raises(NodeUnreachable, match="refused"):
            get(server)


def test_how_far_an_upload_has_come_is_known():
    with Scripted([], reads=False) as server:
        cancel, seen = Cancel(), []

        def look():
            seen.append(cancel.sending())
            cancel.cancel()

        threading.Timer(0.2, look).start()
        with pytest.raises(Cancelled):
            Api(server.url).request("POST", "/", [bytes(60_000_000)], cancel=cancel)
    sent, seconds = seen[0]
    assert 0 < sent < 60_000_000 and 0.1 < seconds < 1


def test_an_address_is_checked():
    for wrong in ("ftp://host", "http://", "http:///x"):
        with pytest.raises(ValueError, match="not an address of a node"):
            Api(wrong)
    with pytest.raises(NodeUnreachable):
        Api("http://127.0.0.1:1").request("GET", "/")


@pytest.mark.parametrize(("soon", "asleep"), [(60.0, wire.SOON_REPLIES), (0.0, 20)])
def test_replies_that_come_soon_are_waited_for_awake(monkeypatch, soon, asleep):
    monkeypatch.setattr(wire, "SOON_SECONDS", soon)
    monkeypatch.setattr(wire, "_HAS_ANOTHER", True)
    waits, wait = [], wire._Connection._wait
    monkeypatch.setattr(wire._Connection, "_wait", lambda *given: waits.append(given) or wait(*given))
    with Scripted(*[OK] * 20) as server:
        api = Api(server.url, "lighter_t")
        for _ in range(20):
            assert bytes(api.request("GET", "/x", deadline=time.monotonic() + 60).body) == b"hello"
        assert (len(waits), server.connections) == (asleep, 1)


def test_a_reply_that_was_expected_soon_may_come_late(monkeypatch):
    monkeypatch.setattr(wire, "SOON_REPLIES", 0)
    with Scripted(*[[OK[:60], OK[60:]]] * 3, pause=0.01) as server:
        api = Api(server.url, "lighter_t")
        for _ in range(3):
            assert bytes(api.request("GET", "/x", deadline=time.monotonic() + 60).body) == b"hello"

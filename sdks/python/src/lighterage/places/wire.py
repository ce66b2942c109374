"""HTTP/1.1 to one node: few connections that stay open, requests in pieces that are not joined, replies read in place.

The standard library's client costs more than a whole call may (150 µs), and copies bodies. This one does what a node
needs and no more: one request at a time on a connection, bodies with a length, TLS by the standard library.
"""

from __future__ import annotations

import functools
import os
import re
import select
import socket
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import numpy as np

from ..errors import NodeUnproven, NodeUnreachable, ReplyBroken, TimeIsUp
from .config import FLEET_PREFIX
from .connect import connect

if TYPE_CHECKING:
    import ssl

#: Bytes of the head of a reply.
HEAD_BYTES_MAX: Final = 64 << 10
#: Heads that only say that another one comes.
HEADS_MAX: Final = 8
#: Bytes of a line between chunks, and of all lines after the last.
LINE_BYTES_MAX: Final = 4 << 10
#: Seconds that a reply may say something took; of more it is not believed.
TIMING_SECONDS_MAX: Final = 86_400.0
#: Bytes of a reply, where nothing else is said.
BODY_BYTES_MAX: Final = 64 << 20
#: Bytes of a reply for which aligned memory costs more than it saves.
SMALL_BYTES: Final = 2 << 10
#: Bytes of the nonce that a node proves itself with, and of its whole answer.
NONCE_BYTES: Final = 32
PROOF_BYTES_MAX: Final = 4 << 10
#: Hexadecimal digits of a token's hash by which a node of the fleet finds the token.
HASH_START: Final = 16
#: Idle connections kept to one node.
KEPT_MAX: Final = 32
#: Pieces given to one system call.
PIECES_MAX: Final = 64
#: Bytes given to one system call.
SEND_BYTES: Final = 1 << 20
#: The same over TLS, which gives the system a record of 16 KiB at a time.
TLS_SEND_BYTES: Final = 64 << 10
#: How long a connection may take to open.
CONNECT_SECONDS: Final = 3.0
#: A reply that is expected within so many seconds is waited for awake: to fall asleep and to be woken takes a good part of
#: that. It is expected after so many in a row that came as soon; one that does not come ends it.
SOON_SECONDS: Final = 500e-6
SOON_REPLIES: Final = 8
#: How long a request without a deadline may stand still.
FOREVER_SECONDS: Final = 86_400.0

_STATUS: Final = re.compile(r"[1-5][0-9]{2}(?![0-9])")
_DECIMAL: Final = re.compile(r"[0-9]{1,18}")
_HEXADECIMAL: Final = re.compile(rb"[0-9a-fA-F]{1,16}")

Piece = bytes | bytearray | memoryview


@dataclass
class Reply:
    """What came back, and when its parts came: seconds of the monotonic clock."""

    status: int
    headers: dict[str, str]
    body: memoryview
    sent_at: float = 0.0
    head_at: float = 0.0
    whole_at: float = 0.0
    began_at: float = 0.0
    #: Bytes that it was allowed to have.
    body_max: int = BODY_BYTES_MAX

    @functools.cached_property
    def timing(self) -> dict[str, float]:
        """What the node says its parts took, in seconds. Read where it is asked for: not every call is learnt from."""
        return _timing(self.headers.get("server-timing", ""))


class Api:
    """One node's API by its address, `http://…` or `https://…`. Safe for threads."""

    def __init__(self, url: str, token: str | None = None, ca_file: str | None = None, *, proves: bool = False) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is not an address of a node: write http://host:port or https://host:port")
        self.url = f"{parts.scheme}://{parts.netloc}"
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = None
        if parts.scheme == "https":
            # Loaded where it is needed only: it takes longer than all of the rest.
            import ssl

            self._tls = ssl.create_default_context(cafile=ca_file)
        head = f"host: {parts.netloc}\r\n"
        self._unsigned = head.encode("ascii")
        #: What the other side of a new connection has to know before it is sent anything.
        self._secret = token if proves else None
        if token:
            head += f"authorization: Bearer {token}\r\n"
        self._fixed = head.encode("ascii")
        self._kept: deque[_Connection] = deque(maxlen=KEPT_MAX)
        self._lock = threading.Lock()

    def request(
        self,
        method: str,
        path: str,
        pieces: Sequence[Piece] = (),
        *,
        content_type: str = "application/octet-stream",
        deadline: float | None = None,
        headers: str = "",
        cancel: Cancel | None = None,
        body_max: int = BODY_BYTES_MAX,
    ) -> Reply:
        """Sends a request and reads the whole reply. `deadline` is of the monotonic clock.

        A connection that was closed while idle is opened anew, once: nothing of the request has been read by then.

        Raises NodeUnreachable or ReplyBroken; TimeIsUp past the deadline.
        """
        length = sum(piece.nbytes if isinstance(piece, memoryview) else len(piece) for piece in pieces)
        head = (
            b"%s %s HTTP/1.1\r\n" % (method.encode("ascii"), path.encode("ascii"))
            + self._fixed
            + b"content-type: %s\r\ncontent-length: %d\r\n" % (content_type.encode("ascii"), length)
            + headers.encode("ascii")
            + b"\r\n"
        )
        while True:
            connection, is_fresh = self._take(deadline, cancel)
            try:
                if cancel is not None:
                    cancel.watch(connection.socket)
                reply = connection.exchange(head, pieces, deadline, 0 if method == "HEAD" else body_max, cancel)
            except _Stale:
                connection.close()
                if cancel is not None and cancel.is_cancelled:
                    raise Cancelled from None
                if is_fresh:
                    raise ReplyBroken(f"{self.url} closed the connection instead of answering") from None
                continue
            except BaseException:
                connection.close()
                if cancel is not None and cancel.is_cancelled:
                    raise Cancelled from None
                raise
            finally:
                if cancel is not None:
                    cancel.unwatch()
            if reply.headers.get("connection", "").lower() == "close":
                connection.close()
            else:
                with self._lock:
                    self._kept.append(connection)
            return reply

    def _take(self, deadline: float | None, cancel: Cancel | None) -> tuple[_Connection, bool]:
        while True:
            with self._lock:
                connection = self._kept.pop() if self._kept else None
            if connection is None:
                return self._open(deadline, cancel or Cancel()), True
            if connection.is_quiet():
                return connection, False
            connection.close()

    def _open(self, deadline: float | None, cancel: Cancel) -> _Connection:
        try:
            return self._opened(deadline, cancel)
        except BaseException:
            cancel.unwatch()
            # What was ended in the middle looks like a node that cannot be reached, or that proves nothing.
            if cancel.is_cancelled:
                raise Cancelled from None
            raise

    def _opened(self, deadline: float | None, cancel: Cancel) -> _Connection:
        seconds = CONNECT_SECONDS if deadline is None else max(0.001, min(CONNECT_SECONDS, deadline - time.monotonic()))
        try:
            raw = connect(self._host, self._port, seconds, cancel.opens)
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                raw = _secured(self._tls, raw, self._host, cancel)
        except OSError as error:
            raise NodeUnreachable(f"{self.url}: {error}") from None
        connection = _Connection(raw, self.url, self._tls is not None)
        if self._secret is not None:
            try:
                cancel.opens(raw)
                self._see_proof(connection, self._secret, time.monotonic() + seconds)
            except BaseException:
                connection.close()
                raise
        return connection

    def _see_proof(self, connection: _Connection, secret: str, deadline: float) -> None:
        """Asks for proof that this is the node of the data folder, or one of the fleet: whoever listens where a killed node did
        cannot give it.
        """
        # Loaded where they are needed only, as TLS is.
        import hashlib
        import hmac
        import json

        nonce = os.urandom(NONCE_BYTES).hex()
        if is_of_fleet := secret.startswith(FLEET_PREFIX):
            # Nodes keep the hash of it, and of all tokens of the fleet this is the one that is meant.
            secret = hashlib.sha256(secret.encode("ascii")).hexdigest()
        which = f"{nonce}&token={secret[:HASH_START]}" if is_of_fleet else nonce
        head = b"GET /v1/identity?nonce=%s HTTP/1.1\r\n%s\r\n" % (which.encode("ascii"), self._unsigned)
        try:
            reply = connection.exchange(head, (), deadline, body_max=PROOF_BYTES_MAX)
            proof = json.loads(bytes(reply.body))["proof"]
            is_proven = reply.status == 200 and hmac.compare_digest(proof, proof_of(secret, self.url, nonce))
        except (_Stale, ReplyBroken, TimeIsUp, OSError, ValueError, KeyError, TypeError):
            is_proven = False
        if not is_proven:
            who = "no node of the fleet" if is_of_fleet else "not the node of the data folder"
            raise NodeUnproven(f"what listens at {self.url} is {who}; no token was sent to it")

    def close(self) -> None:
        """Closes idle connections; the next request opens one."""
        with self._lock:
            kept, self._kept = self._kept, deque(maxlen=KEPT_MAX)
        for connection in kept:
            connection.close()


def _secured(tls: ssl.SSLContext, raw: socket.socket, host: str, cancel: Cancel) -> socket.socket:
    """A connection with TLS in place of this one. Its handshake comes once `cancel` knows the new socket: the old one
    is none any more.
    """
    secured = tls.wrap_socket(raw, server_hostname=host, do_handshake_on_connect=False)
    try:
        cancel.opens(secured)
        secured.do_handshake()
    except BaseException:
        secured.close()
        raise
    return secured


def proof_of(token: str, url: str, nonce: str) -> str:
    """What the node of a data folder with this token answers to a nonce, or one of a fleet that knows this hash of a token. The
    same as `identity.rs` of the node.
    """
    import hashlib
    import hmac

    key = hmac.digest(token.encode("ascii"), b"lighterage identity 1", hashlib.sha256)
    return hmac.new(key, b"%s\0%s" % (url.encode("ascii"), nonce.encode("ascii")), hashlib.sha256).hexdigest()


class Cancelled(Exception):
    """The caller no longer wants the reply."""


class Cancel:
    """Ends a request from another thread, and says from there how far it has come."""

    def __init__(self) -> None:
        self.is_cancelled = False
        self._socket: socket.socket | None = None
        #: Whether the connection is there, and a request is on it.
        self._is_open = False
        #: What has to come before a request is sent.
        self._awaited: threading.Event | None = None
        self._lock = threading.Lock()
        self._given = 0
        self._began = 0.0
        self._is_sent = False

    def opens(self, connection: socket.socket) -> None:
        """A connection for a request is being opened. Raises Cancelled."""
        with self._lock:
            if self.is_cancelled:
                raise Cancelled
            self._socket, self._is_open = connection, False

    def watch(self, connection: socket.socket) -> None:
        """A request is sent on this connection from now on. Raises Cancelled."""
        with self._lock:
            if self.is_cancelled:
                raise Cancelled
            self._socket, self._is_open = connection, True
            self._given, self._began, self._is_sent = 0, time.monotonic(), False

    def wait(self, ready: threading.Event, until: float) -> None:
        """Waits for an event that comes before a request, until a time of the monotonic clock. Raises Cancelled."""
        with self._lock:
            if self.is_cancelled:
                raise Cancelled
            self._awaited = ready
        try:
            ready.wait(min(max(until - time.monotonic(), 0.0), FOREVER_SECONDS))
        finally:
            with self._lock:
                self._awaited = None
                is_cancelled = self.is_cancelled
        if is_cancelled:
            raise Cancelled

    def gave(self, given: int, is_sent: bool) -> None:
        """So many bytes were handed to the system."""
        self._given, self._is_sent = given, is_sent

    def sending(self) -> tuple[int, float] | None:
        """Bytes that have arrived and seconds since the beginning, while the request is on its way; none after that."""
        with self._lock:
            if self._socket is None or not self._is_open:
                return None
            try:
                waiting = _unsent(self._socket)
            except OSError:
                return None
        return None if self._is_sent and not waiting else (max(0, self._given - waiting), time.monotonic() - self._began)

    @property
    def is_busy(self) -> bool:
        """Whether a request is on its way, or a connection for it is being opened."""
        return self._socket is not None

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits for a request, or for what comes before it."""
        return self._socket is not None or self._awaited is not None

    def unwatch(self) -> None:
        with self._lock:
            self._socket = None

    def cancel(self) -> None:
        """A node stops the unit of a call whose connection closes."""
        with self._lock:
            self.is_cancelled = True
            if self._awaited is not None:
                self._awaited.set()
            if self._socket is not None:
                try:
                    # What was not sent yet is thrown away when it is closed: nobody waits for it, and others need the network.
                    self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    # Of the socket beneath TLS: TLS's own would let the thread that sends go on without it.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
                except OSError:
                    return


def _some(views: deque[memoryview]) -> list[memoryview]:
    """What one system call gets: so much that it pays, so little that it is known how far the request has come."""
    some, size = [], 0
    for view in views:
        some.append(view if size + view.nbytes <= SEND_BYTES else view[: SEND_BYTES - size])
        size += some[-1].nbytes
        if len(some) == PIECES_MAX or size >= SEND_BYTES:
            break
    return some


def _unsent(connection: socket.socket) -> int:
    """Bytes in the system's buffer that the other side has not confirmed; 0 where the system does not say."""
    if not sys.platform.startswith("linux"):
        return 0
    import fcntl
    import termios

    return int.from_bytes(fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


class _Stale(Exception):
    """The connection was closed before a byte of the reply came."""


class _Connection:
    """One connection, used by one thread at a time.

    A socket with a timeout asks the system twice for each time that it sends or receives, and once more to set the timeout.
    This one never blocks: it is waited for only where there is nothing to do yet.
    """

    def __init__(self, connected: socket.socket, url: str, is_tls: bool) -> None:
        self.socket = connected
        self._is_tls = is_tls
        self._url = url
        self._readable: select.poll | None = None
        self._writable: select.poll | None = None
        #: Replies in a row that came soon.
        self._soon = 0
        if not is_tls and sys.platform != "win32":
            connected.setblocking(False)
            self._readable, self._writable = select.poll(), select.poll()
            self._readable.register(connected, select.POLLIN)
            self._writable.register(connected, select.POLLOUT)

    def is_quiet(self) -> bool:
        """Whether it can be used again: nothing came, not even its end."""
        try:
            if self._readable is not None:
                return not self._readable.poll(0)
            readable, _, _ = select.select([self.socket], [], [], 0)
        except (OSError, ValueError):
            return False
        return not readable

    def close(self) -> None:
        self.socket.close()

    def exchange(
        self, head: bytes, pieces: Sequence[Piece], deadline: float | None, body_max: int, cancel: Cancel | None = None
    ) -> Reply:
        began = time.monotonic()
        self._limit(deadline)
        early = self._send([head, *pieces], deadline, cancel)
        sent = time.monotonic()
        try:
            status, headers, rest = self._read_head(deadline)
        except _Stale:
            if early is None:
                raise
            raise ReplyBroken(f"{self._url} closed the connection while it was sent to: {early}") from None
        head_at = time.monotonic()
        self._soon = self._soon + 1 if head_at - sent < SOON_SECONDS else 0
        has_body = body_max and status not in (204, 304)
        body = self._read_body(headers, rest, deadline, body_max) if has_body else memoryview(b"")
        reply = Reply(status, headers, body, sent, head_at, time.monotonic(), began, body_max=body_max)
        if early is not None:
            # The node answered before it had read everything: what is left of the request is in the way.
            reply.headers["connection"] = "close"
        return reply

    def _limit(self, deadline: float | None) -> None:
        # Not blocking for good: a system call that returns often lets `Cancel.sending` know how far it has come.
        left = FOREVER_SECONDS if deadline is None else deadline - time.monotonic()
        if left <= 0:
            raise TimeIsUp(f"{self._url} did not answer in time")
        if self._readable is None:
            self.socket.settimeout(left)

    def _wait(self, poll: select.poll, deadline: float | None) -> None:
        """Until there is something to do, which may be that the connection has ended. Raises TimeoutError past the deadline."""
        left = FOREVER_SECONDS if deadline is None else min(deadline - time.monotonic(), FOREVER_SECONDS)
        if left <= 0 or not poll.poll(left * 1e3):
            raise TimeoutError

    def _send(self, pieces: list[Piece], deadline: float | None, cancel: Cancel | None) -> OSError | None:
        """Sends everything; an error in the middle is kept, for the node may have said why before."""
        try:
            views = deque(memoryview(piece).cast("B") for piece in pieces if len(piece))
            given = 0
            if self._is_tls:
                for view in views:
                    for at in range(0, view.nbytes, TLS_SEND_BYTES):
                        self._limit(deadline)
                        part = view[at : at + TLS_SEND_BYTES]
                        self.socket.sendall(part)
                        given += part.nbytes
                        if cancel is not None:
                            cancel.gave(given, False)
                views.clear()
            while views:
                if given:
                    self._limit(deadline)
                try:
                    sent = self.socket.sendmsg(_some(views))
                except BlockingIOError:
                    assert self._writable is not None
                    self._wait(self._writable, deadline)
                    continue
                given += sent
                if cancel is not None:
                    cancel.gave(given, False)
                while sent:
                    first = views[0]
                    if sent < first.nbytes:
                        views[0] = first[sent:]
                        break
                    sent -= first.nbytes
                    views.popleft()
            if cancel is not None:
                cancel.gave(given, True)
        except TimeoutError:
            raise TimeIsUp(f"{self._url} did not take the request in time") from None
        except OSError as error:
            return error
        return None

    def _read_head(self, deadline: float | None) -> tuple[int, dict[str, str], bytes]:
        data, heads = b"", 0
        while True:
            end = data.find(b"\r\n\r\n")
            if end >= 0:
                status, headers = _head(data[:end], self._url)
                data = data[end + 4 :]
                if not 100 <= status < 200:
                    return status, headers, data
                heads += 1
                if heads > HEADS_MAX:
                    raise ReplyBroken(f"{self._url} says again and again that its reply will come")
                continue
            if len(data) > HEAD_BYTES_MAX:
                raise ReplyBroken(f"{self._url} sent more than {HEAD_BYTES_MAX} bytes of headers")
            self._limit(deadline)
            try:
                readable = self._readable
                if readable is not None and not (self._soon >= SOON_REPLIES and _comes_soon(readable)):
                    self._wait(readable, deadline)
                more = self.socket.recv(16_384)
            except BlockingIOError:
                continue
            except TimeoutError:
                raise TimeIsUp(f"{self._url} did not answer in time") from None
            except OSError as error:
                if data or heads:
                    raise ReplyBroken(f"{self._url}: {error}") from None
                raise _Stale from None
            if not more:
                if data or heads:
                    raise ReplyBroken(f"{self._url} broke off in the head of its reply")
                raise _Stale
            data += more

    def _read_body(self, headers: dict[str, str], rest: bytes, deadline: float | None, body_max: int) -> memoryview:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return memoryview(self._read_chunks(rest, deadline, body_max))
        said = headers.get("content-length", "")
        if not _DECIMAL.fullmatch(said):
            raise ReplyBroken(f"{self._url} does not say how long its reply is")
        length = int(said)
        if length > body_max:
            raise ReplyBroken(f"{self._url} announces a reply of {length} bytes, the limit is {body_max}")
        body = _room(length)
        if len(rest) > length:
            raise ReplyBroken(f"{self._url} sent more than it announced")
        body[: len(rest)] = rest
        at = len(rest)
        while at < length:
            self._limit(deadline)
            got = self._receive(body[at:], deadline)
            at += got
        return body

    def _receive(self, into: memoryview, deadline: float | None) -> int:
        try:
            while True:
                try:
                    got = self.socket.recv_into(into)
                    break
                except BlockingIOError:
                    assert self._readable is not None
                    self._wait(self._readable, deadline)
        except TimeoutError:
            raise TimeIsUp(f"{self._url} did not send its whole reply in time") from None
        except OSError as error:
            raise ReplyBroken(f"{self._url}: {error}") from None
        if got == 0:
            raise ReplyBroken(f"{self._url} broke off in its reply")
        return got

    def _read_chunks(self, rest: bytes, deadline: float | None, body_max: int) -> bytes:
        data, body, at = bytearray(rest), bytearray(), 0
        block = memoryview(bytearray(65_536))

        def more() -> None:
            self._limit(deadline)
            data.extend(block[: self._receive(block, deadline)])

        def line() -> bytes:
            nonlocal at
            looked = at
            while (end := data.find(b"\r\n", looked, at + LINE_BYTES_MAX)) < 0:
                if len(data) - at >= LINE_BYTES_MAX:
                    raise ReplyBroken(f"{self._url} sent a line of more than {LINE_BYTES_MAX} bytes between chunks")
                looked = max(at, len(data) - 1)
                more()
            found, at = bytes(data[at:end]), end + 2
            return found

        while True:
            said = line().partition(b";")[0].strip(b" \t")
            if not _HEXADECIMAL.fullmatch(said):
                raise ReplyBroken(f"{self._url} sent a broken chunk")
            size = int(said, 16)
            if size > body_max - len(body):
                raise ReplyBroken(f"{self._url} sent more than {body_max} bytes")
            if size == 0:
                break
            while len(data) < at + size + 2:
                more()
            if data[at + size : at + size + 2] != b"\r\n":
                raise ReplyBroken(f"{self._url} sent a broken chunk")
            body += data[at : at + size]
            del data[: at + size + 2]
            at = 0
        # What may follow is read, and nothing of it is used; what comes after that would be taken for the next reply.
        trailers = 0
        while found := line():
            trailers += len(found) + 2
            if trailers > LINE_BYTES_MAX:
                raise ReplyBroken(f"{self._url} sent more than {LINE_BYTES_MAX} bytes after its last chunk")
        if len(data) > at:
            raise ReplyBroken(f"{self._url} sent more than its reply")
        return bytes(body)


#: Whether there is a processor on which a node could work while this one waits awake.
_HAS_ANOTHER: Final = (os.cpu_count() or 1) > 1


def _comes_soon(readable: select.poll) -> bool:
    """Waits awake; says whether something came. Each look lets other threads run."""
    until = time.monotonic() + SOON_SECONDS if _HAS_ANOTHER else 0.0
    while not readable.poll(0):
        if time.monotonic() > until:
            return False
    return True


def _room(length: int) -> memoryview:
    """Memory for a frame, writable: arrays are views of it."""
    if length <= SMALL_BYTES:
        # As aligned as any number wants.
        return memoryview(bytearray(length))
    block = np.empty(length + 64, np.uint8)
    start = -block.ctypes.data % 64
    return block.data[start : start + length]


def _head(data: bytes, url: str) -> tuple[int, dict[str, str]]:
    lines = data.decode("latin-1").split("\r\n")
    version, _, rest = lines[0].partition(" ")
    if not version.startswith("HTTP/1.") or not _STATUS.match(rest):
        raise ReplyBroken(f"{url} does not speak HTTP")
    headers = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    return int(rest[:3]), headers


def _timing(text: str) -> dict[str, float]:
    """`queue;dur=0.1, run;dur=2` in seconds (Server Timing, W3C)."""
    times = {}
    for part in text.split(","):
        name, _, rest = part.strip().partition(";dur=")
        try:
            seconds = float(rest.split(";")[0]) / 1_000
        except ValueError:
            continue
        # Not a number is no number between these.
        if 0 <= seconds <= TIMING_SECONDS_MAX:
            times[name] = seconds
    return times

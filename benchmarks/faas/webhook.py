"""A webhook: takes what is posted, says 200, and tells of it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable


class Webhook:
    """Listens on a port of its own, each connection on a thread."""

    def __init__(self, hear: Callable[[bytes, float], None]) -> None:
        self._hear = hear
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.address: tuple[str, int] = self._listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                made, _ = self._listener.accept()
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._serve, args=(made,), daemon=True).start()

    def _serve(self, made: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError), made, made.makefile("rb") as lines:
            while lines.readline():
                length = 0
                while (line := lines.readline().strip().lower()) != b"":
                    if line.startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                body = lines.read(length)
                self._hear(body, time.perf_counter())
                made.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")

    def close(self) -> None:
        self._listener.close()


class Poster:
    """Posts to one address on a connection that stays."""

    def __init__(self, address: tuple[str, int], path: str = "/", seconds: float = 60.0) -> None:
        self._path = path
        self._connection = http.client.HTTPConnection(*address, timeout=seconds)

    def post(self, body: bytes) -> bytes:
        """Raises OSError or HTTPException where it is not answered, and ValueError where the answer is no 200."""
        is_kept = self._connection.sock is not None
        try:
            return self._post(body)
        except ConnectionError:
            if not is_kept:
                raise
            # A server may close a connection that was idle for long.
            return self._post(body)

    def _post(self, body: bytes) -> bytes:
        headers = {"content-type": "application/json"}
        try:
            if self._connection.sock is None:
                self._connection.connect()
                self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connection.request("POST", self._path, body, headers)
            reply = self._connection.getresponse()
            said = reply.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            raise
        if reply.status != 200:
            raise ValueError(f"{reply.status}: {said[:200].decode(errors='replace')}")
        return said

    def close(self) -> None:
        self._connection.close()

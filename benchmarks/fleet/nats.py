"""The least of a NATS client: one request at a time, for the API of JetStream."""

from __future__ import annotations

import json
import socket
from types import TracebackType
from typing import Any, Final

from nodes import Failed

INBOX: Final = "_INBOX.bench"


class Nats:
    """One connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._lines = connection.makefile("rb")
        self._lines.readline()
        options = json.dumps({"verbose": False, "pedantic": False, "name": "bench"})
        self._socket.sendall(f"CONNECT {options}\r\nSUB {INBOX}.* 1\r\n".encode())
        self._asked = 0

    def __enter__(self) -> Nats:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._lines.close()
        self._socket.close()

    def api(self, subject: str, asked: dict[str, Any]) -> dict[str, Any]:
        """What JetStream answers; raises Failed where that is an error."""
        body = json.dumps(asked).encode()
        self._asked += 1
        inbox = f"{INBOX}.{self._asked}"
        self._socket.sendall(f"PUB $JS.API.{subject} {inbox} {len(body)}\r\n".encode() + body + b"\r\n")
        found: dict[str, Any] = json.loads(self._message(inbox.encode()))
        if "error" in found:
            raise Failed(f"JetStream, {subject}: {found['error']}")
        return found

    def _message(self, inbox: bytes) -> bytes:
        """The next one there: what comes elsewhere answers an earlier question."""
        while True:
            line = self._lines.readline()
            if line.startswith(b"PING"):
                self._socket.sendall(b"PONG\r\n")
            elif line.startswith(b"MSG "):
                _, to, *_, length = line.split()
                body = self._lines.read(int(length) + 2)[:-2]
                if to == inbox:
                    return body
            elif not line:
                raise OSError("nats-server has closed the connection")

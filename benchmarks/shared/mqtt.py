"""A client of MQTT 3.1.1, as far as benchmarks need one: QoS 1 in both directions, and when each message came."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

#: Seconds that a broker may take for an answer.
ANSWER_SECONDS: Final = 30.0
#: Of CONNECT; nothing here is idle for longer.
KEEP_ALIVE_SECONDS: Final = 3_600

#: Told of each message: topic, payload, and `time.perf_counter` when it was here. Confirmed once it has returned.
Hear = Callable[[str, bytes, float], None]


def text(word: str) -> bytes:
    """A string as MQTT has it."""
    data = word.encode()
    return struct.pack(">H", len(data)) + data


def packet(head: int, body: bytes) -> bytes:
    """A packet: its first byte, its length, its body."""
    length, rest = bytearray(), len(body)
    while True:
        rest, digit = divmod(rest, 128)
        length.append(digit | (128 if rest else 0))
        if not rest:
            return bytes([head]) + bytes(length) + body


class Connection:
    """One that the broker has let in."""

    def __init__(self, address: tuple[str, int], name: str) -> None:
        self._socket = socket.create_connection(address, ANSWER_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._bytes = b""
        self.send(packet(0x10, text("MQTT") + b"\x04\x02" + struct.pack(">H", KEEP_ALIVE_SECONDS) + text(name)))
        head, body = self.take()
        if head != 0x20 or body[1:] != b"\x00":
            raise ConnectionError(f"the broker at {address} does not let {name} in: {body.hex()}")

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def wait_for_ever(self) -> None:
        """A packet may take any time from now on."""
        self._socket.settimeout(None)

    def take(self) -> tuple[int, bytes]:
        """The next packet: its first byte, and its body."""
        head = self._exactly(1)[0]
        length, shift = 0, 0
        while True:
            digit = self._exactly(1)[0]
            length |= (digit & 127) << shift
            shift += 7
            if digit < 128:
                return head, self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        while len(self._bytes) < count:
            some = self._socket.recv(1 << 16)
            if not some:
                raise ConnectionError("the broker has closed the connection")
            self._bytes += some
        taken, self._bytes = self._bytes[:count], self._bytes[count:]
        return taken

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Publisher:
    """Publishes with QoS 1 and waits until all is confirmed. Threads may share one."""

    def __init__(self, address: tuple[str, int], name: str) -> None:
        self._connection = Connection(address, name)
        self._number = 0
        self._lock = threading.Lock()

    def publish(self, messages: Sequence[tuple[str, bytes]]) -> None:
        with self._lock:
            packets = []
            for topic, payload in messages:
                self._number = self._number % 65_535 + 1
                packets.append(packet(0x32, text(topic) + struct.pack(">H", self._number) + payload))
            self._connection.send(b"".join(packets))
            left = len(packets)
            while left:
                left -= self._connection.take()[0] == 0x40

    def close(self) -> None:
        self._connection.close()


class Subscriber:
    """Hears what is published under some filters, on a thread of its own."""

    def __init__(self, address: tuple[str, int], name: str, filters: Sequence[str], hear: Hear) -> None:
        self._connection = Connection(address, name)
        self._hear = hear
        for number, one in enumerate(filters, 1):
            self._connection.send(packet(0x82, struct.pack(">H", number) + text(one) + b"\x01"))
            head, body = self._connection.take()
            if head != 0x90 or body[2:] != b"\x01":
                raise ConnectionError(f"the broker refuses {one}: {body.hex()}")
        self._connection.wait_for_ever()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(ConnectionError, OSError):
            while True:
                head, body = self._connection.take()
                now = time.perf_counter()
                # What was retained before is nothing new.
                if head >> 4 != 3 or head & 1:
                    continue
                end = 2 + int.from_bytes(body[:2], "big")
                has_number = bool(head & 0x06)
                payload = body[end + 2 :] if has_number else body[end:]
                self._hear(body[2:end].decode(), payload, now)
                if has_number:
                    self._connection.send(b"\x40\x02" + body[end : end + 2])

    def close(self) -> None:
        self._connection.close()

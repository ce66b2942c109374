"""Strangers and users at the MQTT gate: wrong passwords, sessions and retained messages without end."""

from __future__ import annotations

import contextlib
import itertools
import os
import selectors
import socket
import struct
import time
from dataclasses import dataclass
from typing import Final

from attacks import Attack, Target
from node import connect
from shared.mqtt import packet, text

#: The users of `node.toml`, made by the benchmark.
GOOD_USER: Final = ("meter", "right")
IDLE_USER: Final = ("nobody", "right")
CONNECT_OK: Final = 0


def connect_packet(client: str, user: str, password: str, expiry: int = 0) -> bytes:
    """CONNECT of MQTT 5, with a name and a password unless the name is empty; `expiry` in seconds keeps the session."""
    properties = b"\x11" + struct.pack(">I", expiry) if expiry else b""
    flags = (0 if expiry else 0x02) | (0xC0 if user else 0)
    body = text("MQTT") + b"\x05" + bytes([flags]) + struct.pack(">H", 60)
    body += bytes([len(properties)]) + properties + text(client)
    return packet(0x10, body + (text(user) + text(password) if user else b""))


def publish_packet(topic: str, payload: bytes, number: int, retain: bool = False) -> bytes:
    """PUBLISH with QoS 1."""
    return packet(0x32 | retain, text(topic) + struct.pack(">H", number) + b"\x00" + payload)


@dataclass
class Message:
    """A message with QoS 2 on its way, as far as its client knows (MQTT 5, section 4.3.3)."""

    number: int
    payload: bytes
    is_sent: bool = False
    is_received: bool = False

    def go_on(self, made: socket.socket, topic: str) -> bool:
        """Publishes it, or goes on where it broke off; whether it is confirmed at both ends.

        Raises:
            TimeoutError: no answer came.
        """
        number = struct.pack(">H", self.number % 65_535 + 1)
        if not self.is_received:
            # What was said to be received must not be published again.
            head, self.is_sent = (0x3C if self.is_sent else 0x34), True
            made.sendall(packet(head, text(topic) + number + b"\x00" + self.payload))
            self.is_received = made.recv(4_096)[:1] == b"\x50"
        if not self.is_received:
            return False
        made.sendall(packet(0x62, number))
        return made.recv(4_096)[:1] == b"\x70"


def log_in(address: tuple[str, int], client: str, user: str, password: str, seconds: float, expiry: int = 0) -> socket.socket:
    """A connection that was let in.

    Raises:
        OSError: it was not, or not in time.
    """
    made = connect(address, seconds)
    made.sendall(connect_packet(client, user, password, expiry))
    answer = made.recv(4)
    if len(answer) < 4 or answer[0] != 0x20 or answer[3] != CONNECT_OK:
        made.close()
        raise ConnectionRefusedError(f"CONNACK {answer.hex()}")
    return made


def wrong_passwords(target: Target) -> None:
    """1,500 connections with a wrong password each; who is answered or cut off comes again."""
    held: set[socket.socket] = set()
    selector = selectors.DefaultSelector()
    numbers = itertools.count()
    while time.time() < target.until:
        while len(held) < 1_500:
            try:
                made = connect(target.mqtt, 0.5)
                made.sendall(connect_packet(f"wrong-{next(numbers)}", GOOD_USER[0], f"wrong-{os.urandom(4).hex()}"))
            except OSError:
                break
            held.add(made)
            selector.register(made, selectors.EVENT_READ)
        for key, _ in selector.select(0.1):
            selector.unregister(key.fileobj)
            held.discard(key.fileobj)
            key.fileobj.close()


def kept_sessions(target: Target) -> None:
    """Sessions that are to be kept for a month, each under another name."""
    numbers = itertools.count()
    while time.time() < target.until:
        with contextlib.suppress(OSError):
            log_in(target.mqtt, f"kept-{next(numbers)}", *IDLE_USER, 2, expiry=2_592_000).close()


def retained(target: Target) -> None:
    """Retained messages of 16 kB, each under another topic."""
    numbers = itertools.count()
    while time.time() < target.until:
        try:
            made = log_in(target.mqtt, "retaining", *GOOD_USER, 5)
        except OSError:
            time.sleep(0.1)
            continue
        with made, contextlib.suppress(OSError):
            made.settimeout(1)
            while time.time() < target.until:
                number = next(numbers)
                made.sendall(publish_packet(f"flood/{number}", b"x" * 16_000, number % 65_535 + 1, retain=True))
                made.recv(4_096)


def idle(target: Target) -> None:
    """Connections that never say CONNECT."""
    held = []
    while time.time() < target.until:
        try:
            held.append(connect(target.mqtt, 0.5))
        except OSError:
            time.sleep(0.05)
        if len(held) > 3_000:
            for one in held:
                one.close()
            held.clear()


ATTACKS: Final = [
    Attack("wrong_passwords", "1,500 MQTT clients with wrong passwords, again and again", wrong_passwords),
    Attack("kept_sessions", "MQTT sessions to be kept for a month", kept_sessions),
    Attack("retained", "retained messages of 16 kB", retained),
    Attack("idle_at_mqtt", "3,000 MQTT connections that say nothing", idle),
]

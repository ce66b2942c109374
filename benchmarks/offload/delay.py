"""Carries packets between two ports and keeps each for a while: `delay.py PORT PORT MILLISECONDS [LOSS]`.

LOSS is the part of the packets that is lost on the way, by a chance that is the same each time.

`delay.py --whole-packets PORT` makes a host finish its packets (checksum, size) before they leave by this port.
"""

from __future__ import annotations

import array
import fcntl
import random
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Final

_ETH_P_ALL: Final = 3
_OUTGOING: Final = 4
_SIOCETHTOOL: Final = 0x8946
#: Setting these to 0: checksums, TCP's and everybody's segments are made by the card (linux/ethtool.h).
_OFFLOADS: Final = (0x17, 0x1F, 0x24)
#: Packets kept in one direction; more are lost, as in a real queue.
KEPT_MAX: Final = 20_000
#: Seconds before a packet is due that are waited for without sleeping.
SPIN_SECONDS: Final = 0.0002


def main(ports: list[str], seconds: float, loss: float = 0.0) -> None:
    sockets, chance = [], random.Random(1)
    for port in ports:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ALL))
        made.bind((port, 0))
        made.setblocking(False)
        sockets.append(made)
    other = dict(zip(sockets, reversed(sockets), strict=True))
    kept: dict[socket.socket, deque[tuple[float, bytes]]] = {made: deque() for made in sockets}
    while True:
        now = time.monotonic()
        for target, queue in kept.items():
            while queue and queue[0][0] <= now:
                try:
                    target.send(queue.popleft()[1])
                except OSError:
                    # The port's own queue is full: the packet is lost, and TCP slows down.
                    continue
        due = min((queue[0][0] for queue in kept.values() if queue), default=now + 1.0)
        wait = max(0.0, due - time.monotonic() - SPIN_SECONDS)
        for ready in select.select(sockets, [], [], wait)[0]:
            _take(ready, kept[other[ready]], seconds, lambda: chance.random() < loss)


def _take(source: socket.socket, queue: deque[tuple[float, bytes]], seconds: float, is_lost: Callable[[], bool]) -> None:
    due = time.monotonic() + seconds
    for _ in range(64):
        try:
            packet, address = source.recvfrom(65_536)
        except BlockingIOError:
            return
        if address[2] != _OUTGOING and len(queue) < KEPT_MAX and not is_lost():
            queue.append((due, packet))


def whole_packets(port: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for offload in _OFFLOADS:
            value = array.array("B", struct.pack("II", offload, 0))
            request = struct.pack("16sP", port.encode(), value.buffer_info()[0])
            fcntl.ioctl(any_socket, _SIOCETHTOOL, request)


if __name__ == "__main__":
    if sys.argv[1] == "--whole-packets":
        whole_packets(sys.argv[2])
    else:
        main(sys.argv[1:3], float(sys.argv[3]) / 1_000, *map(float, sys.argv[4:]))

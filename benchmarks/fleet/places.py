"""Where nodes are: on addresses of this machine, or each in a network namespace with a cable of its own.

n1 ──cable── link ──cable── n2          each is a network namespace; `link` is the switch
10.78.0.1      │            10.78.0.2
              n3
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol

from shared.namespaces import need, remove, remove_leftovers, run

#: What namespaces of this benchmark begin with; then comes the process.
PREFIX: Final = "lf"
GATE: Final = 8700
API: Final = 8701
LINK: Final = 8702
CLONE_NEWNET: Final = 0x40000000


class Place(Protocol):
    """A machine for a node."""

    #: Where its gate and its API listen.
    local: str
    #: Where other nodes reach it.
    address: str

    def command(self, command: list[str]) -> list[str]:
        """The same command, run there."""

    def inside(self) -> contextlib.AbstractContextManager[None]:
        """Sockets that this thread opens meanwhile are opened there."""

    def cut(self, is_cut: bool) -> None:
        """Takes its cable out, or puts it in again."""

    def carried(self) -> int:
        """Bytes that it has sent and received by its cable."""


class Loopback:
    """An address of this machine that nobody connects from, so that its ports are free when its node starts again."""

    _next = itertools.count(1)

    def __init__(self) -> None:
        mark, number = os.getpid() % 60_000, next(self._next)
        self.local = self.address = f"127.{1 + mark // 240}.{1 + mark % 240}.{1 + number % 250}"

    def command(self, command: list[str]) -> list[str]:
        return command

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        yield

    def cut(self, is_cut: bool) -> None:
        raise NotImplementedError("an address of this machine has no cable")

    def carried(self) -> int:
        raise NotImplementedError("an address of this machine has no cable")


class Cabled:
    """A network namespace with one cable to the switch."""

    local = "127.0.0.1"

    def __init__(self, network: Network, number: int) -> None:
        self.address = f"10.78.0.{number}"
        self._port = f"p{number}"
        self._network = network
        self.space = f"{network.mark}-n{number}"
        run("ip", "netns", "add", self.space)
        run("ip", "-n", self.space, "link", "set", "lo", "up")
        ends = ("eth", "netns", self.space, "type", "veth", "peer", "name", self._port, "netns", network.switch)
        run("ip", "link", "add", *ends)
        run("ip", "-n", self.space, "address", "add", f"{self.address}/24", "dev", "eth")
        run("ip", "-n", self.space, "link", "set", "eth", "up")
        run("ip", "-n", network.switch, "link", "set", "dev", self._port, "master", "switch")
        self.cut(False)

    def command(self, command: list[str]) -> list[str]:
        # Not `ip netns exec`: that hides the control groups, which a node needs.
        return ["nsenter", f"--net=/run/netns/{self.space}", *command]

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        with Path("/proc/thread-self/ns/net").open() as here, Path(f"/run/netns/{self.space}").open() as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(here.fileno())

    def cut(self, is_cut: bool) -> None:
        run("ip", "-n", self._network.switch, "link", "set", "dev", self._port, "down" if is_cut else "up")

    def carried(self) -> int:
        found = json.loads(run("ip", "-n", self.space, "-s", "-j", "link", "show", "dev", "eth"))[0]["stats64"]
        return int(found["rx"]["bytes"]) + int(found["tx"]["bytes"])


class Network:
    """A switch, and as many machines at it as are asked for. Use it as a context manager."""

    def __init__(self) -> None:
        self.mark = f"{PREFIX}{os.getpid()}"
        self.switch = f"{self.mark}-switch"
        self._places: list[Cabled] = []

    def __enter__(self) -> Network:
        need("nsenter")
        remove_leftovers(PREFIX)
        run("ip", "netns", "add", self.switch)
        run("ip", "-n", self.switch, "link", "add", "switch", "type", "bridge", "forward_delay", "0")
        run("ip", "-n", self.switch, "link", "set", "switch", "up")
        return self

    def __exit__(self, *_: object) -> None:
        for place in self._places:
            remove(place.space)
        remove(self.switch)
        self._places.clear()

    def place(self) -> Cabled:
        made = Cabled(self, len(self._places) + 1)
        self._places.append(made)
        return made


def _enter(namespace: int) -> None:
    """Of this thread alone; sockets stay in the namespace in which they were opened."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def connect(place: Place, port: int, seconds: float) -> socket.socket:
    """A connection to what listens on a machine's own address, made there; without delay of small packets."""
    with place.inside():
        made = socket.create_connection((place.local, port), seconds)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made

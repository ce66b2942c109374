"""Starts, calls, sizes and a spike of units; the same spike of containers."""

from __future__ import annotations

import contextlib
import functools
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Final

from peers import Container, Rootfs, Unable
from shared.node import Node, pids_of, pss_mb

#: Calls of the spike, and how long they take to begin.
SPIKE: Final = 200
SPIKE_SECONDS: Final = 1.0
#: Until the first is due: every sender stands ready by then, so that none waits for another one to begin.
LEAD_SECONDS: Final = 1.0
#: A unit that waits is there after this; what a call that comes at once waits for is its start.
PAUSE_SECONDS: Final = 0.4
#: A call whose unit took longer than this had none that waited for it.
WAITED_MS: Final = 5.0


def ready_ms(node: Node, name: str, argument: int, times: int) -> float:
    """Median of the starts that calls waited for whole: each comes at once after one that took the unit that waited.

    The node makes another one for whoever comes next a moment later, on another processor where there is one.
    """
    starts: list[float] = []

    def call() -> None:
        client = node.client()
        starts.append(client.call(name, str(argument).encode()).start)
        client.close()

    while len(starts) < 2 * times:
        time.sleep(PAUSE_SECONDS)
        call()
        call()
    return statistics.median(start for start in starts if start > WAITED_MS)


def call_ms(node: Node, name: str, calls: int, pause: float) -> float:
    """Median of calls one after the other, on one connection, by a client that does nothing else.

    One that makes its request anew and reads every field of the reply takes 0.2 ms for itself.
    """
    request = f"POST /{name} HTTP/1.1\r\nHost: node\r\nContent-Length: 1\r\n\r\n1".encode()
    took = []
    with node.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for turn in range(calls + (20 if pause == 0 else 2)):
            time.sleep(pause)
            began = time.perf_counter()
            connection.sendall(request)
            reply = connection.recv(4_096)
            took.append((time.perf_counter() - began) * 1e3)
            if not reply.startswith(b"HTTP/1.1 200 ") or not reply.endswith(b"\r\n\r\n2"):
                raise RuntimeError(f"{name}, call {turn}: {reply[:400]!r}")
    return statistics.median(took[-calls:])


def unit_pss_mb() -> float:
    """The mean of the units on Libdroid that are there, once those too many have gone."""
    time.sleep(PAUSE_SECONDS)
    found = []
    for pid in pids_of("lighterage.droid.Main"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.append(pss_mb(pid))
    if not found:
        raise Unable("no unit on Libdroid waits")
    return statistics.mean(found)


def spike_p99_ms(node: Node) -> float:
    """200 calls that begin within a second, each on a connection of its own, after one call at a time.

    Raises Unable if one fails.
    """

    def call() -> None:
        client = node.client()
        client.call("plain", b"1")
        client.close()

    return _spike(call)


def spike_container_p99_ms(container: Container) -> float:
    """The same where each request is a container: from its start to its end, with what it says."""
    java = ["/jre/bin/java", "-cp", "/peer/peer.jar", "bench.Peer", "-"]
    commands = iter([container.once(java) for _ in range(SPIKE)])
    taking = threading.Lock()

    def run() -> None:
        with taking:
            command = next(commands)
        subprocess.run(command, stdin=subprocess.DEVNULL, check=True, capture_output=True)

    return _spike(run)


def container(rootfs: Rootfs) -> Container:
    """One that can be started. Raises Unable if there is none."""
    found = Container(rootfs)
    with found.booted(256):
        return found


def _spike(one: Callable[[], None]) -> float:
    """The 99th percentile, in milliseconds from when each was due: one that begins late has waited, too."""
    took: list[float] = []
    failed: list[Exception] = []
    begin = time.perf_counter() + LEAD_SECONDS

    def timed(due: float) -> None:
        time.sleep(max(0.0, due - time.perf_counter()))
        try:
            one()
            took.append((time.perf_counter() - due) * 1e3)
        except (OSError, RuntimeError, subprocess.SubprocessError) as why:
            failed.append(why)

    dues = [begin + SPIKE_SECONDS * number / SPIKE for number in range(SPIKE)]
    _together([functools.partial(timed, due) for due in dues])
    if failed:
        raise Unable(f"{len(failed)} of {SPIKE} requests of a spike failed, the first with: {failed[0]}")
    return sorted(took)[int(SPIKE * 0.99) - 1]


def _together(calls: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

"""Those who have nothing to do with an attack and want to be served: a neighbour's callers and the administrator."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
import subprocess
import threading
import time
from collections.abc import Sequence
from typing import Final

import machine
from node import Node
from shared.machine import free_port

#: Calls of the neighbour a second, on so many connections.
RATE: Final = 200
CONNECTIONS: Final = 8
#: The administrator asks so often, each time over a new connection.
ADMIN_EVERY_SECONDS: Final = 0.1
ADMIN_TIMEOUT_SECONDS: Final = 10.0
#: After an attack the neighbour is well again when so many calls in a row take no more than this.
WELL_CALLS: Final = 20
WELL_SECONDS: Final = 0.05


def p99(values: Sequence[float]) -> float:
    """The 99th percentile; without values there was no answer, which is as late as can be."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(len(ordered) * 0.99) - 1)] if ordered else math.inf


class Neighbour:
    """Calls on a fixed schedule, by the generator that the other benchmarks use."""

    def __init__(self, bench: str, url: str, seconds: float) -> None:
        command = [bench, "load", url, "--rate", str(RATE)]
        command += ["--connections", str(CONNECTIONS), "--seconds", str(seconds), "--warmup-seconds", "0.5"]
        self._load = subprocess.Popen(machine.first_command(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def p99_ms(self) -> tuple[float, int]:
        """99th percentile of its answers in milliseconds, and how many calls failed; infinite where one in a hundred does."""
        out, _ = self._load.communicate()
        try:
            found = json.loads(out)
        except ValueError:
            return math.inf, 0
        failed = sum((found["errors"] or {}).values())
        return math.inf if failed * 100 > found["replies"] else found["latency_us"]["p99"] / 1e3, failed


class Bare:
    """A bare hyper server beside the node, called as the neighbour is: what its callers notice is the machine's doing."""

    def __init__(self, bench: str) -> None:
        address = f"127.0.0.1:{free_port()}"
        self.url = f"http://{address}/"
        # Weighed by itself where the system weighs sessions, as the node is.
        self._server = subprocess.Popen([bench, "hyper", address], stdin=subprocess.DEVNULL, start_new_session=True)

    def close(self) -> None:
        self._server.kill()
        self._server.wait()


class Administrator:
    """Asks for the list of functions with a good token, over a new connection each time."""

    def __init__(self, node: Node) -> None:
        self.times: list[float] = []
        self._node = node
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        machine.first()
        while not self._ended.is_set():
            began = time.monotonic()
            with contextlib.suppress(OSError, ValueError, KeyError, http.client.HTTPException):
                status, _ = self._node.request("api", "GET", "/v1/functions", seconds=ADMIN_TIMEOUT_SECONDS)
                if status != 200:
                    raise ValueError(f"status {status}")
                self.times.append(time.monotonic() - began)
                self._ended.wait(ADMIN_EVERY_SECONDS)
                continue
            self.times.append(max(time.monotonic() - began, ADMIN_TIMEOUT_SECONDS))

    def p99_ms(self) -> float:
        """99th percentile in milliseconds; an answer that did not come took ten seconds."""
        self._ended.set()
        self._thread.join(ADMIN_TIMEOUT_SECONDS + 1)
        return p99(self.times) * 1e3


def recover(node: Node, at_most: float) -> float:
    """Seconds until the neighbour is served as well as ever, and the administrator too."""
    began = time.monotonic()
    well = 0
    while well < WELL_CALLS:
        if time.monotonic() - began > at_most:
            return math.inf
        called = time.monotonic()
        try:
            status, _ = node.request("gate", "GET", "/neighbour", seconds=2.0)
        except (OSError, ValueError, KeyError, http.client.HTTPException):
            status = 0
        well = well + 1 if status == 200 and time.monotonic() - called <= WELL_SECONDS else 0
        if not well:
            time.sleep(0.02)
    with contextlib.suppress(OSError, ValueError, KeyError, http.client.HTTPException):
        if node.get("/v1/functions")[0] == 200:
            return time.monotonic() - began
    return math.inf

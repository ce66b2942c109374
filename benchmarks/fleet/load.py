"""Calls of a node: by the generator that the other benchmarks use, and steady ones of which each is noted."""

from __future__ import annotations

import http.client
import json
import math
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import places
from nodes import Failed, Node, Programs

#: Steady calls a second, and the connections they take turns on.
RATE: Final = 200
CONNECTIONS: Final = 8
#: A call that has no answer after so long has failed.
ANSWER_SECONDS: Final = 10.0
#: A connection whose call takes longer leaves out those that were due meanwhile.
LATE_SECONDS_MAX: Final = 1.0
#: A share of failed calls above this makes a measurement worthless.
ERROR_SHARE_MAX: Final = 0.001


def closed(programs: Programs, node: Node, path: str, connections: int, seconds: float, processors: str = "") -> dict[str, Any]:
    """A closed loop of calls, all of which must be answered."""
    command = [str(programs.bench), "load", f"http://{node.place.local}:{places.GATE}{path}"]
    command += ["--connections", str(connections), "--seconds", str(seconds), "--warmup-seconds", str(min(1.0, seconds / 4))]
    pinned = ["taskset", "-c", processors, *command] if processors else command
    done = subprocess.run(node.place.command(pinned), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"the load generator: {done.stderr.strip()[-300:]}")
    found: dict[str, Any] = json.loads(done.stdout)
    failed = sum(found["errors"].values())
    if found["replies"] == 0 or failed > ERROR_SHARE_MAX * (failed + found["replies"]):
        raise Failed(f"{path} at {node.name}: {found['replies']} good replies and these errors: {found['errors']}")
    return found


@dataclass(frozen=True)
class Call:
    """One call; times are those of `time.monotonic`."""

    due: float
    ended: float
    #: Of its answer; 0 where none came.
    status: int

    @property
    def seconds(self) -> float:
        return self.ended - self.due

    @property
    def is_good(self) -> bool:
        return self.status == 200


def p99(calls: Sequence[Call]) -> float:
    """The 99th percentile of their seconds, each counted from when it was due."""
    ordered = sorted(call.seconds for call in calls)
    return ordered[max(0, math.ceil(len(ordered) * 0.99) - 1)] if ordered else math.inf


class Steady:
    """Calls on a fixed schedule while it is entered: an open loop, each connection with one call at a time."""

    def __init__(self, node: Node, path: str) -> None:
        self.calls: list[Call] = []
        self._node, self._path = node, path
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._send, args=(number,), daemon=True) for number in range(CONNECTIONS)]

    def __enter__(self) -> Steady:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        self.calls.sort(key=lambda call: call.due)

    def between(self, begin: float, end: float) -> list[Call]:
        """Those that were due then; of calls that go on, those that have ended."""
        return sorted((call for call in list(self.calls) if begin <= call.due < end), key=lambda call: call.due)

    def _send(self, number: int) -> None:
        every = CONNECTIONS / RATE
        due = time.monotonic() + every * number / CONNECTIONS
        connection: http.client.HTTPConnection | None = None
        while not self._is_over.wait(max(0.0, due - time.monotonic())):
            status = 0
            try:
                if connection is None:
                    connection = http.client.HTTPConnection(self._node.place.local, places.GATE, timeout=ANSWER_SECONDS)
                    connection.sock = places.connect(self._node.place, places.GATE, ANSWER_SECONDS)
                connection.request("GET", self._path)
                reply = connection.getresponse()
                reply.read()
                status = reply.status
                is_kept = not reply.will_close
            except (OSError, http.client.HTTPException):
                is_kept = False
            if not is_kept and connection is not None:
                connection.close()
                connection = None
            self.calls.append(Call(due, time.monotonic(), status))
            # What was missed for longer is not made up for: it would be a flood.
            due = max(due + every, time.monotonic() - LATE_SECONDS_MAX)

"""Events for the node to handle: at a steady rate, or as many as it can."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final

from watched import QUEUES, Node

#: Events of one push at a steady rate, and of a flood.
BATCH: Final = 500
FLOOD: Final = 40_000
HANDLED_SECONDS: Final = 120.0


def wait(seconds: float) -> None:
    """Lets things go on."""
    time.sleep(seconds)


class Steady:
    """Pushes so many events a second, in the background; what is late is not made up for."""

    def __init__(self, node: Node, rate: int) -> None:
        self._node, self._every = node, BATCH / rate
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._push, daemon=True)
        self._began, self._pushed = 0.0, 0

    def __enter__(self) -> Steady:
        self._began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join()

    def rate(self) -> float:
        """Events a second until now."""
        return self._pushed / (time.monotonic() - self._began)

    def _push(self) -> None:
        due, number = time.monotonic(), 0
        while not self._is_over.wait(max(0.0, due - time.monotonic())):
            self._node.push(number, BATCH)
            self._pushed += BATCH
            number += 1
            due = max(due + self._every, time.monotonic() - self._every)


def flood(node: Node) -> float:
    """Events a second that the node handles while it has more than enough."""
    before = node.acked()
    began = time.monotonic()
    for number in range(FLOOD // 1_000):
        node.push(number % QUEUES, 1_000)
    while (done := node.acked() - before) < FLOOD:
        if time.monotonic() - began > HANDLED_SECONDS:
            raise RuntimeError(f"{done} of {FLOOD} events were handled in {HANDLED_SECONDS} s")
        time.sleep(0.02)
    return FLOOD / (time.monotonic() - began)

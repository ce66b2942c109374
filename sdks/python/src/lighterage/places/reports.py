"""Tells nodes where calls ran, what they had been expected to take and what they took: for the node's dashboard.

Off unless `report` or LIGHTERAGE_REPORT=1 says so. A call notes its decision and goes on; what was noted is sent by a
background thread, at most once a second. What cannot be sent is left out, and counted.

    call ─▶ note ─▶ waiting, 100 a node at most ─▶ (a second later) POST /v1/decisions
"""

from __future__ import annotations

import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..decide import LOCAL, Decision
from ..errors import LighterageError

if TYPE_CHECKING:
    from .node import Node
    from .runtime import Runtime

#: Decisions that wait for one node; the next ones are left out. A node takes as many at once.
WAITING_MAX: Final = 100
#: Seconds between reports to one node, at least, and that a report may take.
EVERY_SECONDS: Final = 1.0
SEND_SECONDS: Final = 5.0
#: Bytes of a name that a node takes; the rest is cut off.
TEXT_BYTES_MAX: Final = 64


class _Noted(NamedTuple):
    """A call that has ended."""

    ended_at: float
    function: str
    place: str
    decision: Decision
    seconds: float


class Reports:
    """Safe for threads."""

    def __init__(self, current: Runtime, device: str | None = None) -> None:
        self._current = current
        self.device = device
        self._lock = threading.Lock()
        #: By node; a node that is a key has a report on its way.
        self._waiting: dict[str, list[_Noted]] = {}
        self._left_out: dict[str, int] = {}

    def note(self, function: str, place: str, decision: Decision, seconds: float) -> None:
        """A call ran there, and took so long. It is told to the node it ran on, else to the one it might have run on."""
        node = place if place != LOCAL else next((one.place for one in decision.predictions if one.place != LOCAL), None)
        if node is None:
            return
        noted = _Noted(time.monotonic(), function, place, decision, seconds)
        with self._lock:
            waiting = self._waiting.get(node)
            if waiting is None:
                self._waiting[node] = [noted]
            elif len(waiting) < WAITING_MAX:
                waiting.append(noted)
                return
            else:
                self._left_out[node] = self._left_out.get(node, 0) + 1
                return
        self._current.timers.after(EVERY_SECONDS, lambda: self._send(node))

    def _send(self, name: str) -> None:
        with self._lock:
            noted, left_out = self._waiting.pop(name, []), self._left_out.pop(name, 0)
        node: Node | None = next((one for one in self._current.nodes() if one.name == name), None)
        now = time.monotonic()
        report = {
            "device": _cut(self.device or socket.gethostname() or "device"),
            "decisions": [_told(one, now) for one in noted],
            "left_out": left_out,
        }
        try:
            if node is not None:
                node.tell(report, now + SEND_SECONDS)
                return
        except LighterageError:
            # The call itself was done; a page that shows less harms nobody.
            pass
        with self._lock:
            self._left_out[name] = self._left_out.get(name, 0) + left_out + len(noted)


def _told(noted: _Noted, now: float) -> dict[str, Any]:
    decision = noted.decision
    expected = next((one for one in decision.predictions if one.place == noted.place), decision.chosen)
    others = [one for one in decision.predictions if one.place != noted.place]
    best = min(others, key=lambda one: one.seconds, default=None)
    told = {
        "function": _cut(noted.function),
        "place": _cut(noted.place),
        "why": _cut(decision.choice.name.lower()),
        "predicted_us": _us(expected.seconds),
        "actual_us": _us(noted.seconds),
        "ago_ms": max(0, min(int(1e3 * (now - noted.ended_at)), 86_400_000)),
    }
    if best is not None:
        told |= {"other": _cut(best.place), "other_us": _us(best.seconds)}
    return told


def _us(seconds: float) -> int:
    """Whole microseconds; a guess may be of years."""
    return int(1e6 * min(max(seconds, 0.0), 86_400.0))


def _cut(text: str) -> str:
    return text.encode(errors="replace")[:TEXT_BYTES_MAX].decode(errors="ignore")

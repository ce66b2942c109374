"""What becomes of mail while something fails in each of twenty rounds: every confirmed event arrives, and once."""

from __future__ import annotations

import http.client
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from bench import Bench
from mailing import arrived, at_home
from nodes import Failed, Fleet, Node, until

ROUNDS: Final = 20
#: How long something fails.
FAILS_SECONDS: Final = 1.5
ENGINE_KILLED: Final = "the engine is killed"
#: Between two pushes.
PAUSE_SECONDS: Final = 0.002


@dataclass
class Pushed:
    """Numbers of events that were pushed; no number is pushed twice."""

    confirmed: set[str] = field(default_factory=set)
    #: The node did not answer: they may be there, once.
    unknown: set[str] = field(default_factory=set)


class Pushing:
    """Pushes one event after the other while it is entered, whatever becomes of the node."""

    def __init__(self, node: Node) -> None:
        self.pushed = Pushed()
        self._node = node
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._push, daemon=True)

    def __enter__(self) -> Pushing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _push(self) -> None:
        number = 0
        while not self._is_over.wait(PAUSE_SECONDS):
            number += 1
            try:
                self._node.ask("POST", "/v1/queues/in/events", f"{number}".encode(), seconds=5.0)
                self.pushed.confirmed.add(f"{number}")
            except (OSError, Failed, http.client.HTTPException):
                self.pushed.unknown.add(f"{number}")
                time.sleep(0.05)


def cuts(bench: Bench) -> None:
    """A function at one node pushes what it gets to a queue of another one, while both, the anchor and cables fail."""
    with bench.cabled() as fleet:
        anchor, meter, home = fleet.begin("anchor", "meter", "home")
        at_home(home, ())
        component = bench.component("relay")
        relay = {"image": component.stem, "queue": "in", "config": {"to": "readings"}, "grants": {"push": ["readings"]}}
        queues = {"readings": {"home": "home"}, "in": {}}
        meter.deploy({"function": {"relay": relay}, "queue": queues}, component)
        ways = _ways(anchor, meter, home)
        if anchor.fleet()["engine"]["process"] is None:
            print("  the fleet has no engine that could be killed")
            ways = [way for way in ways if way[0] != ENGINE_KILLED]
        with Pushing(meter) as pushing:
            for number in range(ROUNDS):
                does, way = ways[number % len(ways)]
                before = len(pushing.pushed.confirmed)
                way()
                print(f"  {number + 1}: {does}; {len(pushing.pushed.confirmed) - before} events pushed meanwhile")
        pushed = pushing.pushed
        _wait_quiet(fleet, meter, home)
        found = arrived(home, "readings")
        rest = home.ask("GET", "/v1/queues/readings")["dead"] + meter.ask("GET", "/v1/queues/in")["dead"]
    lost = pushed.confirmed - found.keys()
    doubled = sum(count - 1 for count in found.values())
    if forged := found.keys() - pushed.confirmed - pushed.unknown:
        raise Failed(f"events that nobody pushed: {sorted(forged)[:5]}")
    bench.figures["mail_lost"], bench.figures["mail_doubled"] = len(lost), doubled
    print(f"  {len(pushed.confirmed)} confirmed, {len(pushed.unknown)} without an answer, {rest} dead letters")
    print(f"  {len(lost)} lost {sorted(lost)[:5]}, {doubled} doubled")


def _wait_quiet(fleet: Fleet, meter: Node, home: Node) -> None:
    """Waits until nothing is on its way any more: neither in a queue, nor in a worker, nor in the outbox."""
    for node in fleet.nodes:
        until(f"{node.name} to answer", lambda node=node: node.ask("GET", "/readyz") is not None)

    def is_quiet() -> bool:
        queues = [meter.ask("GET", f"/v1/queues/{name}") for name in ("in", "readings")]
        left = sum(queue[part] for queue in queues for part in ("ready", "leased", "delayed"))
        return left == 0 and meter.waiting() == 0

    until("an end of all mail", is_quiet, 120.0)
    before = home.ready("readings")
    time.sleep(1.0)
    if home.ready("readings") != before:
        raise Failed("events arrive that were nowhere before")


def _ways(anchor: Node, meter: Node, home: Node) -> list[tuple[str, Callable[[], None]]]:
    """Each in turn; it is over when all is well again as far as this side knows."""

    def cut(node: Node) -> None:
        node.place.cut(True)
        time.sleep(FAILS_SECONDS)
        node.place.cut(False)
        time.sleep(FAILS_SECONDS / 3)

    def kill(*nodes: Node) -> None:
        for node in nodes:
            node.kill()
        time.sleep(FAILS_SECONDS / 3)
        for node in nodes:
            node.start()

    def pause(node: Node) -> None:
        node.pause(True)
        time.sleep(FAILS_SECONDS)
        node.pause(False)

    def kill_engine() -> None:
        # It may be on its way after an earlier death.
        until("an engine to kill", lambda: anchor.fleet()["engine"]["process"] is not None)
        os.kill(anchor.fleet()["engine"]["process"], signal.SIGKILL)
        time.sleep(FAILS_SECONDS)

    def cut_and_kill() -> None:
        home.place.cut(True)
        time.sleep(FAILS_SECONDS)
        kill(home)
        home.place.cut(False)

    return [
        ("the cable of the home is out", lambda: cut(home)),
        ("the home is killed", lambda: kill(home)),
        ("the sender is killed", lambda: kill(meter)),
        ("the cable of the sender is out", lambda: cut(meter)),
        (ENGINE_KILLED, kill_engine),
        ("the home stands still", lambda: pause(home)),
        ("home and sender are killed", lambda: kill(home, meter)),
        ("the anchor is killed", lambda: kill(anchor)),
        ("the sender stands still", lambda: pause(meter)),
        ("the home is killed behind its cut cable", cut_and_kill),
    ]

"""Calls over the fleet: what the way to another node costs, and what callers notice when a node is killed."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from typing import Final

import load
from bench import Bench
from nodes import Node, until

#: Calls at once where the rate is measured.
AT_ONCE: Final = 64
#: How long calls go on before something happens to them, and after it.
BEFORE_SECONDS: Final = 2.0
AFTER_SECONDS: Final = 4.0


def forward(bench: Bench) -> None:
    """The same function, at the node where calls enter and at another one."""
    entry_on, far_on, load_on = _processors()
    with bench.here() as fleet:
        _, entry, far = fleet.begin("anchor", "entry", "far")
        # They were started to join; each gets a processor of its own now, as a machine of its own would have.
        for node, processors in ((entry, entry_on), (far, far_on)):
            node.end()
            node.processors = processors
            node.start()
        fleet.wait_heard()
        component = bench.component("hello-http")
        entry.deploy({"function": {"here": {"image": component.stem, "http": "/here"}}}, component)
        far.deploy({"function": {"there": {"image": component.stem, "http": "/there"}}}, component)
        until("a call over the link", lambda: entry.call("/there") == 200)
        added, parts = [], []
        for number in range(bench.rounds(3, 9)):
            order = ("/here", "/there") if number % 2 == 0 else ("/there", "/here")
            found = {path: _called(bench, (entry, far), path, load_on) for path in order}
            (direct, rate, cpu), (over, over_rate, over_cpu) = found["/here"], found["/there"]
            print(f"  direct {direct:.3f} ms, {rate:.0f}/s, {cpu} · over the link {over:.3f} ms, {over_rate:.0f}/s, {over_cpu}")
            added.append(over - direct)
            parts.append(over_rate / rate)
    bench.figures["forward_added_p50_ms"] = statistics.median(added)
    bench.figures["forward_vs_direct"] = statistics.median(parts)


def _called(bench: Bench, nodes: tuple[Node, Node], path: str, load_on: str) -> tuple[float, float, str]:
    """Median of calls one after the other in ms, calls a second with many at once, and what those cost either node."""
    seconds = bench.seconds(1.0, 5.0)
    entry = nodes[0]
    alone = load.closed(bench.programs, entry, path, 1, seconds, load_on)
    before = [node.cpu_seconds() for node in nodes]
    many = load.closed(bench.programs, entry, path, AT_ONCE, seconds, load_on)
    used = [node.cpu_seconds() - one for node, one in zip(nodes, before, strict=True)]
    cost = " + ".join(f"{1e6 * one / many['replies_with_warmup']:.0f}" for one in used)
    return alone["latency_us"]["p50"] / 1e3, many["replies_per_s"], f"{cost} µs of processor"


def _processors() -> tuple[str, str, str]:
    """One for the entry, one for the far node, and one for the load; on a machine with two the last two share theirs."""
    count = os.cpu_count() or 1
    return "0", str(min(1, count - 1)), str(min(2, count - 1))


def node_killed(bench: Bench) -> None:
    """Steady calls at a node that has the function not, while of the two that have it the one is killed where most run.

    A program that is killed is the figure. That a machine vanishes is printed beside it.
    """
    gaps: dict[bool, list[float]] = {False: [], True: []}
    with bench.cabled() as fleet:
        _, entry, *copies = fleet.begin("anchor", "entry", "one", "two")
        component = bench.component("hello-http")
        for node in copies:
            node.deploy({"function": {"twice": {"image": component.stem, "http": "/twice"}}}, component)
        until("a call over the link", lambda: entry.call("/twice") == 200)
        for number in range(bench.rounds(3, 12)):
            _wait_both(entry, copies)
            # Of three rounds one is of the machine: nobody says then that its connections have ended.
            is_machine = number % 3 == 2
            with load.Steady(entry, "/twice") as steady:
                before = _ran_at(entry)
                time.sleep(BEFORE_SECONDS)
                # One that has just come back may not have been asked yet.
                ran = {name: calls - before.get(name, 0) for name, calls in _ran_at(entry).items()}
                node = max(copies, key=lambda node: ran.get(node.name, 0))
                began = time.monotonic()
                if is_machine:
                    node.place.cut(True)
                node.kill()
                time.sleep(AFTER_SECONDS)
            calls = [call for call in steady.calls if call.ended >= began]
            gap = longest_gap(calls, began)
            gaps[is_machine].append(gap)
            failed = sum(not call.is_good for call in calls)
            words = "the machine" if is_machine else "the program"
            print(f"  {words} of {node.name} ends: gap {1e3 * gap:.0f} ms, {failed} of {len(calls)} calls failed")
            node.place.cut(False)
            node.start()
    bench.figures["node_killed_gap_ms"] = 1e3 * max(gaps[False])
    print(f"  the longest gap of a machine that vanishes: {1e3 * max(gaps[True]):.0f} ms")


def _ran_at(entry: Node) -> dict[str, int]:
    """How many calls of this node ran at each other one."""
    return {one["name"]: one["load"]["calls"] for one in entry.fleet()["nodes"] if one["load"] is not None}


def _wait_both(entry: Node, copies: list[Node]) -> None:
    """Waits until calls at the entry may run at either copy."""
    names = {node.name for node in copies}

    def knows() -> bool:
        return names <= {one["name"] for one in entry.ask("GET", "/v1/fleet/why/twice")["forecasts"]}

    until("both copies to be known", knows)


def longest_gap(calls: list[load.Call], began: float) -> float:
    """From the death until no call fails any more, or the longest that callers waited for a good answer, if that is more."""
    failed = max((call.ended - began for call in calls if not call.is_good), default=0.0)
    slowest = max((call.seconds for call in calls if call.is_good), default=0.0)
    good = sorted(call.ended for call in calls if call.is_good)
    silent = max((later - earlier for earlier, later in itertools.pairwise([began, *good])), default=0.0)
    return max(failed, slowest, silent)


def anchor_killed(bench: Bench) -> None:
    """Calls that run where they enter, and elsewhere, while the anchor is killed with its engine and comes back."""
    away = bench.seconds(6.0, 30.0)
    with bench.cabled() as fleet:
        anchor, entry, far = fleet.begin("anchor", "entry", "far")
        component = bench.component("hello-http")
        entry.deploy({"function": {"here": {"image": component.stem, "http": "/here"}}}, component)
        far.deploy({"function": {"there": {"image": component.stem, "http": "/there"}}}, component)
        until("a call over the link", lambda: entry.call("/there") == 200 and entry.call("/here") == 200)
        with load.Steady(entry, "/here") as here, load.Steady(entry, "/there") as there:
            time.sleep(BEFORE_SECONDS)
            anchor.kill()
            time.sleep(away)
            back = time.monotonic()
            anchor.start()
            until("an invitation", lambda: fleet.invite(1))
            invited = time.monotonic()
            until("the engine for all", lambda: all(node.fleet()["engine"]["connected"] for node in fleet.nodes))
            engine = time.monotonic()
            time.sleep(BEFORE_SECONDS)
    calls = [*here.calls, *there.calls]
    failed = sum(not call.is_good for call in calls)
    bench.figures["anchor_killed_calls_failed"] = failed
    slowest = max(call.seconds for call in calls)
    print(f"  {failed} of {len(calls)} calls failed, the slowest took {1e3 * slowest:.0f} ms")
    print(f"  after the anchor was started again: an invitation in {invited - back:.1f} s, the engine in {engine - back:.1f} s")

"""What all offloaded functions of a process share: the nodes, the estimates and the threads.

Nodes that environment or data folder name are looked up in the background when the first function is called; until they
have answered, calls run here. `connect` adds one at once.
"""

from __future__ import annotations

import copy
import functools
import math
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol
from weakref import WeakSet

from ..decide.engine import Engine, Policy
from ..errors import LighterageError, NodeUnreachable, NoNode, TimeIsUp
from ..helpers import Helpers
from ..timers import Timers, background

# A unit has no nodes: what talks to them is loaded where it is needed.
if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from ..code.code import Code, Component
    from .config import Address
    from .fleet import Fleet
    from .node import Node, NodeInfo
    from .reports import Reports
    from .wire import Cancel

#: Calls that `submit` and `aio` run at once; more wait.
THREADS_MAX: Final = 64


@dataclass
class FunctionStats:
    """What became of the calls of one function in this process."""

    function: str
    #: Calls by place: `local`, or the node's name.
    calls: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    #: Remote calls that failed and ran here or elsewhere instead, by the error's code.
    failures: dict[str, int] = field(default_factory=dict)
    #: Calls that ran here and on a node at once, and of these the ones whose result here was used.
    doubled: int = 0
    doubled_here: int = 0
    bytes_up: int = 0
    bytes_down: int = 0

    def ran(self, place: str, seconds: float, count: int = 1) -> None:
        self.calls[place] = self.calls.get(place, 0) + count
        self.seconds[place] = self.seconds.get(place, 0.0) + seconds

    def failed(self, error: Exception) -> None:
        code = getattr(error, "code", "") or type(error).__name__
        self.failures[code] = self.failures.get(code, 0) + 1


class Counting(Protocol):
    """A function that counts the quickest of its calls by itself."""

    def tell(self, current: Runtime, /) -> None:
        """Counts them in `stats`, with the runtime's lock."""


class Half(Protocol):
    """A call that may go on here when nobody waits for it any more."""

    @property
    def is_left_running(self) -> bool:
        """Whether it does."""


class Runtime:
    """Safe for threads."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        #: Told when a node that was asked who it is has answered, or has not.
        self._heard = threading.Condition(self.lock)
        self.engine = Engine()
        self.timers = Timers()
        #: Threads for calls that run here and may be overtaken.
        self.helpers = Helpers()
        self.stats: dict[str, FunctionStats] = {}
        #: Functions with calls that were too quick to be decided one by one: these are counted when somebody asks.
        self.quick: WeakSet[Counting] = WeakSet()
        #: Whether there are nodes at all; looked at by every call.
        self.has_nodes = False
        #: Tells nodes where calls ran; None: nobody is told.
        self.reports: Reports | None = None
        self._nodes: dict[str, Node] = {}
        self._is_configured = False
        self._pool: ThreadPoolExecutor | None = None
        self._left: set[Half] = set()
        #: Finds further nodes; none where no token is of a fleet.
        self._fleet: Fleet | None = None

    def configure(self) -> None:
        """Takes the nodes that environment and data folder name; they are asked in the background.

        Raises ConfigInvalid where they are not named as they should be.
        """
        with self.lock:
            if self._is_configured:
                return
            from . import config

            # What is wrong with it is said by every call until it is right: a call that ran here would hide it.
            found = [_node(address) for address in config.found()]
            self._is_configured = True
            if self.reports is None and os.environ.get("LIGHTERAGE_REPORT") == "1":
                self.report(True)
            for node in found:
                self._nodes[node.name] = node
                background(functools.partial(self._look, node))
            self.has_nodes = bool(self._nodes)
            self._find_others()

    def report(self, is_on: bool, device: str | None = None) -> None:
        """From now on nodes are told where calls ran, or no more."""
        from .reports import Reports

        self.reports = Reports(self, device) if is_on else None

    @property
    def is_configured(self) -> bool:
        return self._is_configured

    def connect(self, address: Address) -> Node:
        """Adds a node, or the one of this address anew, and asks it who it is.

        Raises ConfigInvalid, or what `Node.info` raises; then it was not added.
        """
        node = _node(address)
        info = node.info()
        with self.lock:
            self._is_configured = True
            old = self._nodes.pop(node.name, None)
            self.engine.forget(node.name)
            self._nodes[node.name] = node
            self._know(node, info)
            self.has_nodes = True
            self._find_others()
        if old is not None:
            old.close()
        return node

    def meet(self, node: Node) -> None:
        """Adds a node that another one has told of, unless it is known; it is asked in the background."""
        with self.lock:
            if self._nodes.setdefault(node.name, node) is not node:
                return
        background(functools.partial(self._look, node))

    def adopt(self, node: Node) -> None:
        """Adds a node without asking it."""
        self._nodes[node.name] = node
        self.has_nodes = True
        if node.known is not None:
            self._know(node, node.known)

    def disconnect(self, which: str | Node | None = None) -> None:
        """Forgets a node, or all of them."""
        with self.lock:
            self._is_configured = True
            for node in [node for node in self._nodes.values() if which in (None, node, node.name, node.url)]:
                del self._nodes[node.name]
                self.engine.forget(node.name)
                node.close()
            self.has_nodes = bool(self._nodes)

    def nodes(self) -> list[Node]:
        """Every node that is known, whether it answers or not."""
        self.configure()
        with self.lock:
            return list(self._nodes.values())

    def usable(self, on: frozenset[str] | None, now: float) -> list[Node]:
        """The nodes that answered when they were last asked something. One not heard of for a while is asked again.

        One that did not answer is none of them while it is asked whether it is back, either: no call has to find out.
        """
        self._keep_finding(now)
        for node in self._nodes.copy().values():
            if node.is_unheard(now):
                background(functools.partial(self._look, node))
        return [
            node
            for node in self._nodes.copy().values()
            if node.known is not None and not (node.is_away(now) or node.has_failed) and node.is_among(on)
        ]

    def hear(self, on: frozenset[str] | None, seconds: float) -> None:
        """Waits, so long at most, until each node has answered or failed to, once."""
        nodes = [node for node in self.nodes() if node.is_among(on)]
        with self._heard:
            self._heard.wait_for(lambda: all(node.known is not None or node.problem for node in nodes), seconds)

    def chosen(self, on: Iterable[str] | None) -> list[Node]:
        """The nodes that were asked for by name, asked now who they are if they have not said so yet.

        Raises NoNode where there is none of them, or what the last of them said.
        """
        self._keep_finding(time.monotonic())
        wanted = None if on is None else frozenset(on)
        if wanted is None and len(self._nodes) == 1:
            (node,) = self._nodes.copy().values()
            if node.known is not None:
                return [node]
        found = [node for node in self.nodes() if node.is_among(wanted)]
        if not found:
            known = ", ".join(node.name for node in self.nodes()) or "none"
            raise NoNode(f"no node {', '.join(sorted(wanted))}; known: {known}" if wanted else "no node is known")
        problem: LighterageError | None = None
        good = []
        for node in found:
            try:
                if node.known is None:
                    self._place(node)
                good.append(node)
            except LighterageError as error:
                problem = error
        if not good and problem is not None:
            raise problem
        now = time.monotonic()
        return sorted(good, key=lambda node: node.is_away(now))

    def prepare(
        self, node: Node, code: Code | Component, until: float = math.inf, cancel: Cancel | None = None
    ) -> None:
        """Puts a function on a node, and learns what the node says only then: how fast its Python is.

        Raises what `Node.prepare` raises.
        """
        if node.is_ready(code.name):
            return
        node.prepare(code, until, cancel)
        if node.known is not None:
            with self.lock:
                self.engine.place(node.name).speed = node.known.speed

    def failed(self, node: Node) -> None:
        """A node did not answer: it is left alone, then asked in the background until it does."""
        pause = node.failed(time.monotonic())
        with self.lock:
            if node.is_watched:
                return
            node.is_watched = True
        self.timers.after(pause, lambda: self._look(node))

    def told(self) -> list[FunctionStats]:
        """What became of all calls that have ended."""
        with self.lock:
            for function in list(self.quick):
                function.tell(self)
            return copy.deepcopy(list(self.stats.values()))

    def stats_of(self, function: str) -> FunctionStats:
        with self.lock:
            found = self.stats.get(function)
            if found is None:
                found = self.stats[function] = FunctionStats(function)
            return found

    @property
    def pool(self) -> ThreadPoolExecutor:
        """Threads for calls that nobody waits for in their own."""
        with self.lock:
            if self._pool is None:
                from concurrent.futures import ThreadPoolExecutor

                self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="lighterage")
            return self._pool

    @property
    def is_disturbed(self) -> bool:
        """Whether something that a call has left still runs here."""
        return bool(self._left) and any(race.is_left_running for race in tuple(self._left))

    def leave(self, race: Half) -> None:
        """The half here of this race may go on when it has lost."""
        with self.lock:
            self._left.add(race)

    def ended(self, race: Half) -> None:
        """It does not."""
        with self.lock:
            self._left.discard(race)

    def _find_others(self) -> None:
        """From now on nodes of a fleet are asked for others, if one of them has a token for all of it."""
        if not any(node.address.is_of_fleet for node in self._nodes.values()):
            return
        if self._fleet is None:
            from .fleet import Fleet

            self._fleet = Fleet(self)
        background(self._fleet.ask)

    def _keep_finding(self, now: float) -> None:
        fleet = self._fleet
        if fleet is not None and fleet.is_due(now):
            background(fleet.ask)

    def _look(self, node: Node) -> None:
        node.is_watched = False
        if self._nodes.get(node.name) is not node:
            return
        try:
            self._place(node)
        except LighterageError:
            self.failed(node)

    def _place(self, node: Node) -> None:
        try:
            info = node.info()
        except LighterageError as error:
            is_silent = isinstance(error, NodeUnreachable | TimeIsUp)
            with self._heard:
                node.problem = f"{'does not answer' if is_silent else 'cannot be used'}: {error}"
                self._heard.notify_all()
            raise
        with self._heard:
            node.problem = ""
            self._know(node, info)
            self._heard.notify_all()

    def _know(self, node: Node, info: NodeInfo) -> None:
        now = time.monotonic()
        place = self.engine.place(node.name, info.speed, info.round_trip)
        place.round_trip.observe(info.round_trip, now)
        place.observe_probe(info.bytes_per_second, now)


def _node(address: Address) -> Node:
    """The node at this address. Raises ConfigInvalid where the certificates that it is known by cannot be read."""
    from .config import ConfigInvalid
    from .node import Node

    try:
        return Node(address)
    except OSError as error:
        raise ConfigInvalid(f"the certificates in {address.ca_file} cannot be read: {error}") from None


def _child() -> None:
    """Connections, threads and locks are the parent's; a child begins anew with the same nodes."""
    global current
    old, current = current, Runtime()
    for node in list(old._nodes.values()):
        current.adopt(node.twin())
    current._is_configured = old._is_configured
    current._find_others()
    if old.reports is not None:
        current.report(True, old.reports.device)


current = Runtime()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_child)


def set_policy(policy: Policy) -> None:
    """How places are chosen, from now on."""
    with current.lock:
        current.engine.policy = policy

"""One offloaded function on nodes: put there, called, and learnt from.

    made ─▶ prepare ─▶ write ─▶ ask ─▶ read ─▶ learn
    source   on the node  frame   Api    frame   stages, by `Server-Timing`

Which node, and what to do when it fails, is not decided here.
"""

from __future__ import annotations

import re
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from . import calls, codecs, frame, runtime
from .decide import Decision, Stages
from .errors import (
    CallTooLarge,
    DoesNotTravel,
    LighterageError,
    NodeRefused,
    ReplyBroken,
    VersionsDiffer,
    is_busy,
)
from .kept import Keeper, Known, Missing
from .options import Options
from .pack import ZLIB, ZSTD, Packer, methods
from .runtime import Runtime
from .timers import background
from .wire import Cancel, Reply

if TYPE_CHECKING:
    from .code import Code, Component
    from .node import Node
    from .race import Race

#: Seconds that transfers may add to the limit on a call's time, and bytes a second that are expected at the least.
SLACK_SECONDS: Final = 10.0
SLOWEST_BYTES_PER_SECOND: Final = 20_000.0
#: Bytes a second above which no packing pays.
FAST_NETWORK: Final = 400e6
#: Seconds for which it is settled whether packing may pay.
PACKING_SECONDS: Final = 0.1
#: Calls that follow each other sooner are not all learnt from: they would say the same.
LEARN_SECONDS: Final = 2e-3
#: Bytes of a transfer that says something about the rate.
RATE_BYTES_MIN: Final = 16_384
#: A line of a lock file that installs zstandard, whatever the machine: after a `;` there would be a condition.
_LOCKS_ZSTD: Final = re.compile(r"^zstandard\s*==[^;\n]*$", re.IGNORECASE | re.MULTILINE)


class OffloadWarning(UserWarning):
    """A function cannot run on nodes and runs here."""


class Carrier:
    """Carries the calls of one function to nodes. Safe for threads."""

    def __init__(self, function: Callable[..., Any], name: str, options: Options) -> None:
        self._function = function
        self._name = name
        self._options = options
        self._code: Code | Component | None = None
        self._preparing: set[str] = set()
        #: Why the function can run here only.
        self.stays: DoesNotTravel | None = None
        #: Nodes that do not take it.
        self.refuses: WeakSet[Node] = WeakSet()
        #: By node: until when the answer holds, and how arrays are packed.
        self._packings: dict[str, tuple[float, calls.Packing | None]] = {}
        self._learnt_at = 0.0
        #: By node: the arrays that its units are taken to have.
        self._known: dict[str, Known] = {}
        self._lock = threading.Lock()

    def is_ready(self, node: Node) -> bool:
        """Whether the function is on the node."""
        return self._code is not None and node.is_ready(self._code.name)

    def attempt(
        self,
        current: Runtime,
        node: Node,
        args: Any,
        kwargs: Any,
        sized: tuple[float, int],
        decision: Decision | None,
        cancel: Cancel,
        deadline: float,
        race: Race | None = None,
    ) -> calls.Outcome:
        """One call of one node, learnt from; in a race, whose half here is stopped when this one is first.

        Raises a LighterageError where the node did not do it; what the function raised is in the outcome.
        """
        size, estimated = sized
        made = self.made()
        plain = self._options.component is not None
        keeper = self.keeper(current, node)
        for _ in range(2):
            pieces, encoded = self._write(current, node, made, args, kwargs, keeper)
            reply = self._ask(current, node, made, pieces, deadline, cancel)
            began = time.perf_counter()
            try:
                if plain:
                    outcome = calls.Outcome(bytes(reply.body))
                else:
                    outcome = calls.read_outcome(reply.body, made.classes, reply.body_max)
            except frame.FrameError as error:
                raise ReplyBroken(f"{node.url} sent a reply that cannot be read: {error}") from None
            decoded = time.perf_counter() - began
            if keeper is None or not isinstance(outcome.error, Missing):
                break
            # A unit that does not have it, a new one perhaps: all is sent again, and nothing was run.
            self._known[node.name].forget()
        is_first = race is None or (not isinstance(outcome.error, DoesNotTravel) and _won(current, race))
        is_disturbed = current.is_disturbed or (race is not None and race.has_begun_here)
        coding, bytes_up = (encoded, decoded), frame.total_bytes(pieces)
        self._learn(current, node, size, decision, reply, coding, bytes_up, estimated, is_first, is_disturbed)
        return outcome

    def _write(
        self, current: Runtime, node: Node, made: Code | Component, args: Any, kwargs: Any, keeper: Keeper | None
    ) -> tuple[list[frame.Piece], float]:
        """The pieces of a call, and the seconds that took."""
        began = time.perf_counter()
        if self._options.component is not None:
            return [_only_bytes(args, kwargs)], 0.0
        packing = self.packing(current, node)
        if keeper is not None:
            packing = calls.Packing(keeper, packing.down if packing is not None else None)
        try:
            pieces = calls.write_call(args, kwargs, made.classes, self._options.codec, packing)
        except frame.FrameError as error:
            raise DoesNotTravel(str(error)) from None
        bytes_up, limit = frame.total_bytes(pieces), self._options.limits.body_bytes
        if bytes_up > limit:
            raise CallTooLarge(f"the arguments of {self._name} take {bytes_up} bytes, body_bytes is {limit}")
        return pieces, time.perf_counter() - began

    def _ask(
        self, current: Runtime, node: Node, made: Code | Component, pieces: list[frame.Piece], deadline: float, cancel: Cancel
    ) -> Reply:
        """The reply of a node, which has the function when it is asked."""
        try:
            current.prepare(node, made)
            return node.call(made, pieces, deadline, cancel)
        except NodeRefused as error:
            if not is_busy(error) and node.refusal(made.name) is not None:
                self.refuses.add(node)
            raise
        except ConnectionError:
            current.failed(node)
            raise

    def keeper(self, current: Runtime, node: Node) -> Keeper | None:
        if not self._options.keep or self._options.codec != codecs.FRAME:
            return None
        known = self._known.get(node.name)
        if known is None:
            known = self._known[node.name] = Known()
        packing = self.packing(current, node)
        return Keeper(known, packing.up if packing is not None else None)

    def packing(self, current: Runtime, node: Node) -> calls.Packing | None:
        """How arrays may be packed on the way to a node and back."""
        if self._options.compress is False:
            return None
        now = time.monotonic()
        until, packing = self._packings.get(node.name, (0.0, None))
        if now >= until:
            packing = self._judge_packing(current, node, now)
            self._packings[node.name] = (now + PACKING_SECONDS, packing)
        return packing

    def _judge_packing(self, current: Runtime, node: Node, now: float) -> calls.Packing | None:
        up = down = None
        if self._options.compress is None:
            with current.lock:
                place = current.engine.place(node.name)
                up, down = place.up_rate.guess(now).middle, place.down_rate.guess(now).middle
            if min(up, down) > FAST_NETWORK:
                return None
        return calls.Packing(Packer(up, self._unpacks(node)), Packer(down, methods()))

    def _unpacks(self, node: Node) -> tuple[str, ...]:
        """The ways of packing arrays that the function's units know: by what the node has, or by what the lock file names."""
        if self._options.lock is None:
            return node.unpacks
        return (ZLIB, ZSTD) if _LOCKS_ZSTD.search(self._options.lock) else (ZLIB,)

    def _learn(
        self,
        current: Runtime,
        node: Node,
        size: float,
        decision: Decision | None,
        reply: Reply,
        coding: tuple[float, float],
        bytes_up: int,
        estimated: int,
        is_first: bool,
        is_disturbed: bool,
    ) -> None:
        now = time.monotonic()
        with current.lock:
            stats = current.stats_of(self._name)
            if is_first:
                stats.ran(node.name, coding[0] + reply.whole_at - reply.began_at + coding[1])
            stats.bytes_up += bytes_up
            stats.bytes_down += reply.body.nbytes
            if now - self._learnt_at < LEARN_SECONDS and decision is None:
                return
            self._learnt_at = now
            place = current.engine.place(node.name)
            stages = stages_of(reply, coding, bytes_up, place.round_trip.guess(now).middle, estimated)
            known = decision if is_first else None
            current.engine.observe_remote(self._name, node.name, size, stages, now, known, is_disturbed)

    def time_limit(self, bytes_up: int) -> float:
        return self._options.limits.seconds + SLACK_SECONDS + bytes_up / SLOWEST_BYTES_PER_SECOND

    def made(self) -> Code | Component:
        """The function's code as it is now, or the component in its place.

        Raises DoesNotTravel.
        """
        from .code import Component

        made = self._code
        if self._options.component is not None and made is None:
            made = self._code = Component(self._options.component, self._options.limits)
        if made is not None and (isinstance(made, Component) or made.bundle.is_current()):
            return made
        with self._lock:
            if self.stays is not None:
                raise self.stays
            from . import code

            try:
                options = self._options
                made = self._code = code.make(self._function, options.limits, options.lock, options.any_version, options.keep)
            except DoesNotTravel as error:
                self.stays = error
                if options.fallback:
                    _warn(f"{self._name} runs here only: {error}")
                raise
        return made

    def prepare_later(self, node: Node) -> None:
        """Puts the function on a node in the background."""
        made = self._code
        if self.stays is not None or node in self.refuses or (made is not None and node.is_ready(made.name)):
            return
        with self._lock:
            if node.name in self._preparing:
                return
            self._preparing.add(node.name)

        def prepare() -> None:
            try:
                runtime.current.prepare(node, self.made())
            except VersionsDiffer as error:
                self.stay(node, error)
            except NodeRefused:
                self.refuses.add(node)
            except ConnectionError:
                runtime.current.failed(node)
            except LighterageError:
                return
            finally:
                self._preparing.discard(node.name)

        background(prepare)

    def stay(self, node: Node, error: LighterageError) -> None:
        if node not in self.refuses:
            self.refuses.add(node)
            _warn(f"{self._name} does not run on {node.name}: {error}")

    def refusal(self, node: Node) -> LighterageError | None:
        return None if self._code is None else node.refusal(self._code.name)


def is_retried(error: LighterageError) -> bool:
    """Whether another node may do it."""
    if isinstance(error, NodeRefused):
        return is_busy(error) or error.status in (401, 403, 404, 422)
    return isinstance(error, ConnectionError | VersionsDiffer)


def stages_of(reply: Reply, coding: tuple[float, float], bytes_up: int, round_trip: float, estimated: int = 0) -> Stages:
    """Where the time of a call went, from the client's clock and the node's `Server-Timing`.

    What is neither the node's nor the reply's transfer is round trip and upload; which, the expected round trip says.
    """
    timing = reply.timing
    run = timing.get("run", 0.0)
    there = sum(timing.get(name, 0.0) for name in ("queue", "start", "decode", "run", "encode"))
    network = max(reply.head_at - reply.began_at - there, 1e-5)
    is_large = bytes_up >= RATE_BYTES_MIN
    return Stages(
        encode=coding[0],
        up=max(network - round_trip, network / 10) if is_large else 0.0,
        round_trip=None if is_large else network,
        queue=max(there - run, 0.0),
        run=run,
        down=reply.whole_at - reply.head_at,
        decode=coding[1],
        bytes_up=bytes_up,
        bytes_down=reply.body.nbytes,
        bytes_estimated=estimated,
    )


def _won(current: Runtime, race: Race) -> bool:
    """Whether the node's answer is the call's; what runs here is stopped, and known to be in the way until it has ended."""
    current.leave(race)
    won = race.there_won()
    if not race.is_left_running:
        current.ended(race)
    return won


def _only_bytes(args: Any, kwargs: Any) -> bytes | memoryview:
    if len(args) == 1 and not kwargs and isinstance(args[0], bytes | bytearray | memoryview):
        return memoryview(args[0]).cast("B")
    raise DoesNotTravel("a component takes one argument, which is bytes")


def _warn(text: str) -> None:
    """Warns of the line that called into this package."""
    level, caller = 2, sys._getframe(1)
    while caller.f_back is not None and caller.f_globals.get("__name__", "").startswith("lighterage."):
        level, caller = level + 1, caller.f_back
    warnings.warn(text, OffloadWarning, stacklevel=level)

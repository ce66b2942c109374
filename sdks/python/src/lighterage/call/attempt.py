"""One call of one node, learnt from.

    made ─▶ prepare ─▶ write ─▶ ask ─▶ read ─▶ learn
    source   on the node  frame   Api    frame   stages, by `Server-Timing`

Which node, and what to do when it fails, is not decided here.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import CallTooLarge, DoesNotTravel, LighterageError, NodeRefused, ReplyBroken, TimeIsUp, VersionsDiffer, is_busy
from ..places.wire import Cancel, Reply
from ..travel import calls, frame
from ..travel.kept import Keeper, Missing
from . import learn

if TYPE_CHECKING:
    from ..code.code import Code, Component
    from ..decide import Decision, Prediction
    from ..places.node import Node
    from .call import Call
    from .race import Race


@dataclass(slots=True)
class Attempt:
    """A call at a node, until `until`; in a race, whose half here is stopped when this one is first."""

    call: Call
    node: Node
    until: float
    #: What it follows from; none where a node was asked for.
    decision: Decision | None = None
    race: Race | None = None

    @property
    def prediction(self) -> Prediction:
        """What it was expected to take."""
        assert self.decision is not None
        return next(one for one in self.decision.predictions if one.place == self.node.name)

    def run(self) -> calls.Outcome:
        """Raises a LighterageError where the node did not do it; what the function raised is in the outcome."""
        call, function = self.call, self.call.function
        made = function.made()
        keeper = function.keeper(call.current, self.node)
        for is_last in (False, True):
            pieces, encoded = self._write(made, keeper)
            reply = self._ask(made, pieces)
            began = time.perf_counter()
            outcome = self._read(made, reply)
            decoded = time.perf_counter() - began
            if keeper is None or not isinstance(outcome.error, Missing):
                break
            if is_last:
                raise ReplyBroken(f"{self.node.url} lacks an array that it was sent with the call")
            # A unit that does not have it, a new one perhaps: all is sent again, and nothing was run. None of it is named,
            # for what another call has sent meanwhile another unit may have.
            function.forget_kept(self.node)
            keeper.sends_all = True
        is_lost = isinstance(outcome.error, DoesNotTravel)
        if not is_lost:
            function.vain.end()
        is_first = self.race is None or (not is_lost and self._won(self.race))
        learn.answered(self, learn.Answer(reply, frame.total_bytes(pieces), encoded, decoded), is_first)
        if is_lost and self.decision is not None and function.options.fallback:
            # Its result does not travel. Here it need not.
            assert outcome.error is not None
            raise outcome.error
        return outcome

    def _write(self, made: Code | Component, keeper: Keeper | None) -> tuple[list[frame.Piece], float]:
        """The pieces of a call, and the seconds that took."""
        call, function = self.call, self.call.function
        began = time.perf_counter()
        if function.options.component is not None:
            return [_only_bytes(call.args, call.kwargs)], 0.0
        packing = function.packing(call.current, self.node)
        if keeper is not None:
            packing = calls.Packing(keeper, packing.down if packing is not None else None)
        try:
            pieces = calls.write_call(call.args, call.kwargs, made.classes, function.options.codec, packing)
        except frame.FrameError as error:
            raise DoesNotTravel(str(error)) from None
        bytes_up, limit = frame.total_bytes(pieces), function.options.limits.body_bytes
        if bytes_up > limit:
            raise CallTooLarge(f"the arguments of {function.name} take {bytes_up} bytes, body_bytes is {limit}")
        return pieces, time.perf_counter() - began

    def _ask(self, made: Code | Component, pieces: list[frame.Piece]) -> Reply:
        """The reply of a node, which has the function when it is asked."""
        call, node = self.call, self.node
        cancel = self.race.cancel if self.race is not None else call.cancel or Cancel()
        try:
            self._prepare(made, cancel)
            return node.call(made, pieces, self.until, cancel)
        except NodeRefused as error:
            if not is_busy(error) and node.refusal(made.name) is not None:
                call.function.refuses.add(node)
            elif error.is_of_deployment and not call.function.is_paused(node, time.monotonic()):
                call.function.pause_after(node, error)
            raise
        except ConnectionError:
            call.current.failed(node)
            raise

    def _prepare(self, made: Code | Component, cancel: Cancel) -> None:
        """Puts the function on the node. Where nothing else would do the call, and nobody said when it is wanted, that may
        take as long as it takes, and is no part of the call's time.
        """
        call, node, options = self.call, self.node, self.call.function.options
        if node.is_ready(made.name):
            return
        is_patient = options.deadline is None and (self.decision is None or not (options.fallback and options.local))
        began = time.monotonic()
        call.current.prepare(node, made, math.inf if is_patient else self.until, cancel)
        if is_patient:
            self.until += time.monotonic() - began

    def _read(self, made: Code | Component, reply: Reply) -> calls.Outcome:
        if self.call.function.options.component is not None:
            return calls.Outcome(bytes(reply.body))
        try:
            return calls.read_outcome(reply.body, made.classes, reply.body_max)
        except frame.FrameError as error:
            raise ReplyBroken(f"{self.node.url} sent a reply that cannot be read: {error}") from None

    def _won(self, race: Race) -> bool:
        """Whether the node's answer is the call's; what runs here is stopped, and known to be in the way until it has ended."""
        current = self.call.current
        current.leave(race)
        won = race.there_won()
        if not race.is_left_running:
            current.ended(race)
        return won


def is_retried(error: LighterageError) -> bool:
    """Whether another node may do it."""
    if isinstance(error, NodeRefused):
        return is_busy(error) or error.is_of_deployment or error.status in (401, 403, 404, 422)
    return isinstance(error, ConnectionError | VersionsDiffer)


def is_in_vain(error: LighterageError) -> bool:
    """Whether the node did what it could, and another time, or another node, would not help."""
    return not (is_retried(error) or error.is_of_deployment or isinstance(error, TimeIsUp))


def _only_bytes(args: Any, kwargs: Any) -> bytes | memoryview:
    if len(args) == 1 and not kwargs and isinstance(args[0], bytes | bytearray | memoryview):
        return memoryview(args[0]).cast("B")
    raise DoesNotTravel("a component takes one argument, which is bytes")

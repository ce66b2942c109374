"""`@offload`: a function that runs wherever it will finish first, here or on a node.

    f(x) ─▶ fast path: lately chosen to run here, and far from the border ─▶ plain call, timed
         └▶ decide ─┬▶ here   timed, and learnt from
                    └▶ node   encode, call, decode; Server-Timing is learnt from
                        ├ pure and late: started here as well, first result wins
                        └ failed: another node, then here

What a unit does reaches nobody but through its result, so running a call again is always safe as far as nodes go.
"""

from __future__ import annotations

import functools
import inspect
import math
import sys
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar, overload
from weakref import WeakSet

from . import calls, codecs, frame, here, runtime
from .decide import LOCAL, Choice, Decision, Prediction, Stages
from .errors import (
    CallTooLarge,
    DoesNotTravel,
    LighterageError,
    NodeRefused,
    NoNode,
    ReplyBroken,
    TimeIsUp,
    VersionsDiffer,
    is_busy,
)
from .kept import Keeper, Known, Missing
from .limits import Limits
from .measure import sizes
from .pack import Packer, methods
from .runtime import Runtime
from .timers import background
from .wire import Cancel, Cancelled, Reply

# What a unit does not need is loaded where it is used: units begin sooner, and are smaller.
if TYPE_CHECKING:
    from concurrent.futures import Future

    from .code import Code, Component
    from .explain import Explanation
    from .node import Node

P = ParamSpec("P")
R = TypeVar("R")

#: Seconds that putting a function on a node is taken to last, before it has been done.
PREPARE_SECONDS: Final = 0.5
#: A function that is done here sooner than this is not worth putting on a node.
WORTH_SECONDS: Final = 0.5e-3
#: The fast path: calls and seconds until the next real decision, and how far from the border it must be.
FAST_CALLS: Final = 64
FAST_SECONDS: Final = 0.5
FAST_MARGIN: Final = 1.5
#: Runs longer than this decide each time: deciding costs nothing beside them.
FAST_RUN_SECONDS: Final = 0.1
#: Seconds that a node is waited for at least, before the call is run here instead.
PATIENCE_SECONDS: Final = 1.0
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


class OffloadWarning(UserWarning):
    """A function cannot run on nodes and runs here."""


@dataclass(frozen=True)
class Options:
    """How a function is offloaded. `@offload(…)` takes them by name."""

    #: Same arguments, same result, and nothing else happens: a late call may be started here as well.
    pure: bool = False
    #: Seconds in which the result is wanted.
    deadline: float | None = None
    #: Only these nodes, by name or address; all of them without it.
    on: frozenset[str] | None = None
    #: What the work grows with, called with the arguments; guessed without it.
    size: Callable[..., float] | None = None
    #: Other nodes that are tried when one fails.
    retries: int = 1
    #: Whether a call that no node could finish runs here.
    fallback: bool = True
    #: Whether it may run here at all.
    local: bool = True
    #: Text of a requirements file with hashes: packages the node installs beside numpy.
    lock: str | None = None
    #: Take nodes whose Python or packages differ.
    any_version: bool = False
    #: How arguments and results are written: `frame`, or for comparison `json`, `ujson` or `raw`.
    codec: str = codecs.FRAME
    #: Whether large arrays are compressed: where a sample and the measured rate say that it pays, never, or always.
    compress: bool | None = None
    #: Whether its units serve many calls and keep large arrays, so that one that was sent before is not sent again.
    keep: bool = False
    #: The name of a portable component on the nodes that does the same, bytes in and bytes out; it also runs on boards.
    component: str | None = None
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        if self.component is not None and (self.keep or self.lock is not None or self.codec != codecs.FRAME):
            raise ValueError("component= takes bytes as they are: without codec=, keep= and lock=")
        if self.codec not in codecs.NAMES:
            raise ValueError(f"codec={self.codec!r} is none of {', '.join(codecs.NAMES)}")
        if self.deadline is not None and not self.deadline > 0:
            raise ValueError(f"deadline={self.deadline!r} is no time: write seconds, more than 0")


class _Fast:
    """Calls of one size that run here without being decided one by one."""

    __slots__ = ("count", "left", "seconds", "until")

    def __init__(self, until: float) -> None:
        self.left = FAST_CALLS
        self.until = until
        self.count = 0
        self.seconds = 0.0


class Offloaded(Generic[P, R]):
    """A function that decides where it runs. Calling it is calling the function."""

    def __init__(self, function: Callable[P, R], options: Options) -> None:
        functools.update_wrapper(self, function)
        self.options = options
        self.__lighterage_function__ = function
        self._name = f"{function.__module__}:{function.__qualname__}"
        self._is_async = inspect.iscoroutinefunction(function)
        self._fast: dict[int, _Fast] = {}
        self._code: Code | Component | None = None
        self._stays: DoesNotTravel | None = None
        self._refuses: WeakSet[Node] = WeakSet()
        self._preparing: set[str] = set()
        #: By node: until when the answer holds, and how arrays are packed.
        self._packings: dict[str, tuple[float, calls.Packing | None]] = {}
        self._learnt_at = 0.0
        #: By node: the arrays that its units are taken to have.
        self._known: dict[str, Known] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<offloaded {self._name}>"

    @overload
    def __get__(self, instance: None, owner: type) -> Offloaded[P, R]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> Method: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> Any:
        return self if instance is None else Method(self, instance)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function where it will finish first."""
        current = runtime.current
        if not current.has_nodes:
            if current.is_configured or here.is_unit():
                return self.__lighterage_function__(*args, **kwargs)
            current.configure()
        if self._is_async:
            return self._later(args, kwargs)  # type: ignore[return-value]  # R is the coroutine.
        size, bytes_up = sizes(args, kwargs) if self.options.size is None else self._sizes(args, kwargs)
        fast = self._fast.get(int(math.log2(size) * 4.0))
        if fast is not None and fast.left:
            began = time.perf_counter()
            if began < fast.until:
                result = self.__lighterage_function__(*args, **kwargs)
                fast.left -= 1
                fast.count += 1
                fast.seconds += time.perf_counter() - began
                return result
        return self._decided(current, args, kwargs, size, bytes_up, None)  # type: ignore[no-any-return]

    def local(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function here."""
        if here.is_unit() or self._is_async:
            return self.__lighterage_function__(*args, **kwargs)
        size, _ = self._sizes(args, kwargs)
        return self._here(runtime.current, args, kwargs, size, None)  # type: ignore[no-any-return]

    def remote(self, *args: Any, on: str | Node | Iterable[str | Node] | None = None, **kwargs: Any) -> Any:
        """Calls the function on a node: that of this name, or the best. An async function gives an awaitable.

        Raises what the function raises; NoNode, or what kept the last node that was tried from answering.
        """
        if here.is_unit():
            return self.__lighterage_function__(*args, **kwargs)
        if self._is_async:
            import asyncio

            return asyncio.wrap_future(self._submit(lambda cancel: self._remote_only(args, kwargs, on, cancel)))
        return self._remote_only(args, kwargs, on, None)

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Calls the function where it will finish first, and does not wait. Cancelling ends a call on a node."""
        if here.is_unit():
            return _done(self.__lighterage_function__, args, kwargs)
        runtime.current.configure()
        return self._submit(lambda cancel: self._anywhere(args, kwargs, cancel))

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Calls the function where it will finish first, without holding up the event loop."""
        if here.is_unit():
            result = self.__lighterage_function__(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result
        runtime.current.configure()
        if self._is_async:
            return await self._later(args, kwargs)
        import asyncio

        return await asyncio.wrap_future(self.submit(*args, **kwargs))

    def explain(self, *args: P.args, **kwargs: P.kwargs) -> Explanation:
        """Where this call would run now, what each place is expected to take, and why."""
        current = runtime.current
        nodes = current.nodes()
        size, bytes_up = self._sizes(args, kwargs)
        now = time.monotonic()
        usable = self._places(current.usable(self.options.on, now))
        decision = self._decide(current, usable, size, bytes_up, now)
        notes = [f"{node.name} does not answer" for node in nodes if node not in usable]
        notes += [f"{node.name}: {self._refusal(node)}" for node in usable if self._refusal(node)]
        if self._stays is not None:
            notes.append(f"stays here: {self._stays}")
        from .explain import Explanation

        return Explanation(self._name, decision, size, bytes_up, tuple(notes))

    def with_options(self, **changes: Any) -> Offloaded[P, R]:
        """The same function with other options, as `f.with_options(deadline=0.5)(x)`; what is known of it is shared."""
        return Offloaded(self.__lighterage_function__, replace(self.options, **_checked(changes)))

    def prepare(self, on: str | Node | Iterable[str | Node] | None = None) -> None:
        """Puts the function on the nodes now, so that no call waits for it.

        Raises DoesNotTravel, VersionsDiffer, or what the nodes say.
        """
        made, current = self._made(), runtime.current
        for node in current.chosen(names(on) if on is not None else self.options.on):
            current.prepare(node, made)

    # Deciding

    def _sizes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[float, int]:
        size, bytes_up = sizes(args, kwargs)
        return (size if self.options.size is None else max(float(self.options.size(*args, **kwargs)), 1.0)), bytes_up

    def _places(self, nodes: list[Node]) -> list[Node]:
        """Where calls may go: to nodes, or for a component whose units are boards to these."""
        if self.options.component is None:
            return nodes
        name, now = self.options.component, time.monotonic()
        return [place for node in nodes for place in node.places(name) if not place.is_away(now)]

    def _decide(self, current: Runtime, nodes: list[Node], size: float, bytes_up: int, now: float) -> Decision:
        made, options = self._code, self.options
        waits = {node.name: PREPARE_SECONDS for node in nodes if made is None or not node.is_ready(made.name)}
        if self._stays is None and bytes_up <= options.limits.body_bytes:
            open_ = [node.name for node in nodes if node not in self._refuses]
        else:
            open_ = []
        with current.lock:
            return current.engine.decide(
                self._name, size, bytes_up, open_, now, options.deadline, options.local or not open_, waits, options.pure
            )

    def _decided(
        self, current: Runtime, args: Any, kwargs: Any, size: float, bytes_up: int, cancel: Cancel | None
    ) -> Any:
        now = time.monotonic()
        options = self.options
        bucket = int(math.log2(size) * 4.0)
        fast = self._fast.pop(bucket, None)
        if fast is not None and fast.count:
            self._learn_here(current, size, fast.seconds / fast.count, fast.count, None)
        nodes = self._places(current.usable(options.on, now))
        if not options.local:
            return self._remote_only(args, kwargs, None, cancel)
        decision = self._decide(current, nodes, size, bytes_up, now)
        if decision.place != LOCAL:
            node = next(node for node in nodes if node.name == decision.place)
            return self._there(current, node, args, kwargs, decision, size, bytes_up, cancel)
        self._maybe_fast(bucket, decision)
        return self._here(current, args, kwargs, size, decision, nodes)

    def _maybe_fast(self, bucket: int, decision: Decision) -> None:
        known = decision.predictions[0]
        if known.seconds > FAST_RUN_SECONDS or decision.choice is Choice.EXPLORED:
            return
        others = [prediction.seconds - prediction.spread for prediction in decision.predictions[1:]]
        # The least that any node could take is a round trip; a wait for its preparation is no lasting difference.
        if not others or min(others) > FAST_MARGIN * known.seconds or known.seconds < WORTH_SECONDS:
            self._fast[bucket] = _Fast(time.perf_counter() + FAST_SECONDS)

    # Here

    def _here(
        self,
        current: Runtime,
        args: Any,
        kwargs: Any,
        size: float,
        decision: Decision | None,
        nodes: Iterable[Node] = (),
    ) -> Any:
        began = time.perf_counter()
        result = self.__lighterage_function__(*args, **kwargs)
        took = time.perf_counter() - began
        self._learn_here(current, size, took, 1, decision)
        if took >= WORTH_SECONDS:
            for node in nodes:
                self._prepare_later(node)
        return result

    def _learn_here(self, current: Runtime, size: float, seconds: float, count: int, decision: Decision | None) -> None:
        with current.lock:
            current.engine.observe_local(self._name, size, seconds, decision)
            current.stats_of(self._name).ran(LOCAL, seconds * count, count)

    # There

    def _there(
        self,
        current: Runtime,
        node: Node,
        args: Any,
        kwargs: Any,
        decision: Decision,
        size: float,
        bytes_up: int,
        cancel: Cancel | None,
    ) -> Any:
        """Runs the call on the node that was chosen, or wherever it still can."""
        options, cancel = self.options, cancel or Cancel()
        chosen, local = decision.chosen, decision.predictions[0]
        began = time.monotonic()
        race = _Race(cancel)
        timer = None
        give_up = began + self._time_limit(bytes_up)
        if options.deadline is not None:
            give_up = min(give_up, began + options.deadline)
        if options.fallback:
            patience = max(2 * chosen.p95 + local.p95, chosen.wait + PATIENCE_SECONDS)
            if options.deadline is not None:
                patience = min(patience, max(options.deadline - local.p95, chosen.seconds))
            if options.pure and decision.hedge_after is not None:
                after = min(decision.hedge_after, patience)
                timer = current.timers.after(after, lambda: self._double(race, args, kwargs, current, node, chosen, size))
            elif decision.hedge_after is not None:
                give_up = min(give_up, began + patience)
        try:
            outcome = self._attempt(current, node, args, kwargs, (size, bytes_up), decision, cancel, give_up)
            race.remote_won()
            if isinstance(outcome.error, DoesNotTravel) and options.fallback:
                # Its result does not. Here it need not.
                raise outcome.error
        except Cancelled:
            won = race.wait_for_local()
            if won is None:
                raise _cancelled() from None
            return won.get()
        except LighterageError as error:
            won = race.wait_for_local()
            if won is not None:
                return won.get()
            current.stats_of(self._name).failed(error)
            if isinstance(error, VersionsDiffer):
                self._stay(node, error)
            if not options.fallback and not self._is_retried(error):
                raise
            if isinstance(error, TimeIsUp):
                with current.lock:
                    now = time.monotonic()
                    current.engine.observe_late(self._name, node.name, size, chosen, now - began, now)
                if options.deadline is not None and time.monotonic() >= began + options.deadline:
                    raise
            return self._elsewhere(current, node, args, kwargs, size, bytes_up, cancel, error)
        finally:
            if timer is not None:
                timer.cancel()
        return (outcome if race.local is None else race.local).get()

    def _elsewhere(
        self,
        current: Runtime,
        failed: Node,
        args: Any,
        kwargs: Any,
        size: float,
        bytes_up: int,
        cancel: Cancel,
        error: LighterageError,
    ) -> Any:
        """Another node where one is known to be better than here, else here."""
        tried = {failed.name}
        options = self.options
        for _ in range(options.retries if self._is_retried(error) else 0):
            now = time.monotonic()
            nodes = [node for node in self._places(current.usable(options.on, now)) if node.name not in tried]
            if not nodes:
                break
            decision = self._decide(current, nodes, size, bytes_up, now)
            if decision.place == LOCAL and options.fallback:
                break
            place = decision.place if decision.place != LOCAL else nodes[0].name
            node = next(node for node in nodes if node.name == place)
            tried.add(node.name)
            try:
                limit = now + self._time_limit(bytes_up)
                outcome = self._attempt(current, node, args, kwargs, (size, bytes_up), decision, cancel, limit)
            except Cancelled:
                raise _cancelled() from None
            except LighterageError as other:
                error = other
            else:
                return outcome.get()
        if not options.fallback:
            raise error
        return self._here(current, args, kwargs, size, None)

    def _remote_only(
        self, args: Any, kwargs: Any, on: str | Node | Iterable[str | Node] | None, cancel: Cancel | None
    ) -> Any:
        """On a node and nowhere else; of several the one that is expected to be soonest, then the next."""
        current, options = runtime.current, self.options
        nodes = self._places(current.chosen(names(on) if on is not None else options.on))
        self._made()
        size, bytes_up = self._sizes(args, kwargs)
        cancel = cancel or Cancel()
        began = time.monotonic()
        limit = began + (options.deadline if options.deadline is not None else self._time_limit(bytes_up))
        predictions = self._predict(current, nodes, size, bytes_up, began) if len(nodes) > 1 else {}
        nodes = sorted(nodes, key=lambda node: (node.is_away(began), predictions.get(node.name, 0.0)))
        problem: LighterageError = NoNode("no node is known")
        for node in nodes[: 1 + options.retries]:
            try:
                outcome = self._attempt(current, node, args, kwargs, (size, bytes_up), None, cancel, limit)
            except Cancelled:
                raise _cancelled() from None
            except LighterageError as error:
                current.stats_of(self._name).failed(error)
                if not self._is_retried(error):
                    raise
                problem = error
            else:
                return outcome.get()
        raise problem

    def _predict(self, current: Runtime, nodes: list[Node], size: float, bytes_up: int, now: float) -> dict[str, float]:
        with current.lock:
            found = current.engine.predict(self._name, size, bytes_up, [node.name for node in nodes], now)
        return {prediction.place: prediction.seconds for prediction in found}

    def _attempt(
        self,
        current: Runtime,
        node: Node,
        args: Any,
        kwargs: Any,
        sized: tuple[float, int],
        decision: Decision | None,
        cancel: Cancel,
        deadline: float,
    ) -> calls.Outcome:
        """One call of one node, learnt from.

        Raises a LighterageError where the node did not do it; what the function raised is in the outcome.
        """
        size, estimated = sized
        made = self._made()
        plain = self.options.component is not None
        keeper = self._keeper(current, node)
        for _ in range(2):
            pieces, encoded = self._write(current, node, made, args, kwargs, keeper)
            reply = self._ask(current, node, made, pieces, deadline, cancel)
            began = time.perf_counter()
            try:
                outcome = calls.Outcome(bytes(reply.body)) if plain else calls.read_outcome(reply.body, made.classes)
            except frame.FrameError as error:
                raise ReplyBroken(f"{node.url} sent a reply that cannot be read: {error}") from None
            decoded = time.perf_counter() - began
            if keeper is None or not isinstance(outcome.error, Missing):
                break
            # A unit that does not have it, a new one perhaps: all is sent again, and nothing was run.
            self._known[node.name].forget()
        self._learn_there(
            current, node, size, decision, reply, (encoded, decoded), frame.total_bytes(pieces), estimated
        )
        return outcome

    def _write(
        self, current: Runtime, node: Node, made: Code | Component, args: Any, kwargs: Any, keeper: Keeper | None
    ) -> tuple[list[frame.Piece], float]:
        """The pieces of a call, and the seconds that took."""
        began = time.perf_counter()
        if self.options.component is not None:
            return [_only_bytes(args, kwargs)], 0.0
        packing = self._packing(current, node)
        if keeper is not None:
            packing = calls.Packing(keeper, packing.down if packing is not None else None)
        try:
            pieces = calls.write_call(args, kwargs, made.classes, self.options.codec, packing)
        except frame.FrameError as error:
            raise DoesNotTravel(str(error)) from None
        bytes_up, limit = frame.total_bytes(pieces), self.options.limits.body_bytes
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
                self._refuses.add(node)
            raise
        except ConnectionError:
            current.failed(node)
            raise

    def _keeper(self, current: Runtime, node: Node) -> Keeper | None:
        if not self.options.keep or self.options.codec != codecs.FRAME:
            return None
        known = self._known.get(node.name)
        if known is None:
            known = self._known[node.name] = Known()
        packing = self._packing(current, node)
        return Keeper(known, packing.up if packing is not None else None)

    def _packing(self, current: Runtime, node: Node) -> calls.Packing | None:
        """How arrays may be packed on the way to a node and back."""
        if self.options.compress is False:
            return None
        now = time.monotonic()
        until, packing = self._packings.get(node.name, (0.0, None))
        if now >= until:
            packing = self._judge_packing(current, node, now)
            self._packings[node.name] = (now + PACKING_SECONDS, packing)
        return packing

    def _judge_packing(self, current: Runtime, node: Node, now: float) -> calls.Packing | None:
        up = down = None
        if self.options.compress is None:
            with current.lock:
                place = current.engine.place(node.name)
                up, down = place.up_rate.guess(now).middle, place.down_rate.guess(now).middle
            if min(up, down) > FAST_NETWORK:
                return None
        return calls.Packing(Packer(up, node.unpacks), Packer(down, methods()))

    def _learn_there(
        self,
        current: Runtime,
        node: Node,
        size: float,
        decision: Decision | None,
        reply: Reply,
        coding: tuple[float, float],
        bytes_up: int,
        estimated: int,
    ) -> None:
        now = time.monotonic()
        with current.lock:
            stats = current.stats_of(self._name)
            stats.ran(node.name, coding[0] + reply.whole_at - reply.began_at + coding[1])
            stats.bytes_up += bytes_up
            stats.bytes_down += reply.body.nbytes
            if now - self._learnt_at < LEARN_SECONDS and decision is None:
                return
            self._learnt_at = now
            place = current.engine.place(node.name)
            stages = stages_of(reply, coding, bytes_up, place.round_trip.guess(now).middle, estimated)
            current.engine.observe_remote(self._name, node.name, size, stages, now, decision)

    def _double(
        self,
        race: _Race,
        args: Any,
        kwargs: Any,
        current: Runtime,
        node: Node,
        prediction: Prediction,
        size: float,
    ) -> None:
        """Runs a pure call here beside the one on a node that is late."""
        if not race.begin_local():
            return
        began = time.monotonic()
        stats = current.stats_of(self._name)
        stats.hedges += 1
        try:
            outcome = calls.Outcome(self.__lighterage_function__(*args, **kwargs))
        except BaseException as error:
            outcome = calls.Outcome(error=error)
        sending = race.cancel.sending()
        if race.local_won(outcome):
            stats.hedges_won += 1
            now = time.monotonic()
            with current.lock:
                if sending is not None and sending[0] >= RATE_BYTES_MIN:
                    current.engine.place(node.name).observe_transfer(sending, None, now)
                else:
                    current.engine.observe_late(self._name, node.name, size, prediction, now - race.began, now)
                if outcome.error is None:
                    current.engine.observe_local(self._name, size, now - began)
                stats.ran(LOCAL, now - began)

    def _time_limit(self, bytes_up: int) -> float:
        return self.options.limits.seconds + SLACK_SECONDS + bytes_up / SLOWEST_BYTES_PER_SECOND

    @staticmethod
    def _is_retried(error: LighterageError) -> bool:
        """Whether another node may do it."""
        if isinstance(error, NodeRefused):
            return is_busy(error) or error.status in (401, 403, 404, 422)
        return isinstance(error, ConnectionError | VersionsDiffer)

    # The code

    def _made(self) -> Code | Component:
        """The function's code as it is now, or the component in its place.

        Raises DoesNotTravel.
        """
        from .code import Component

        made = self._code
        if self.options.component is not None and made is None:
            made = self._code = Component(self.options.component, self.options.limits)
        if made is not None and (isinstance(made, Component) or made.bundle.is_current()):
            return made
        with self._lock:
            if self._stays is not None:
                raise self._stays
            from . import code

            try:
                options = self.options
                made = self._code = code.make(
                    self.__lighterage_function__, options.limits, options.lock, options.any_version, options.keep
                )
            except DoesNotTravel as error:
                self._stays = error
                if options.fallback:
                    _warn(f"{self._name} runs here only: {error}")
                raise
        return made

    def _prepare_later(self, node: Node) -> None:
        """Puts the function on a node in the background."""
        made = self._code
        if self._stays is not None or node in self._refuses or (made is not None and node.is_ready(made.name)):
            return
        with self._lock:
            if node.name in self._preparing:
                return
            self._preparing.add(node.name)

        def prepare() -> None:
            try:
                runtime.current.prepare(node, self._made())
            except VersionsDiffer as error:
                self._stay(node, error)
            except NodeRefused:
                self._refuses.add(node)
            except ConnectionError:
                runtime.current.failed(node)
            except LighterageError:
                return
            finally:
                self._preparing.discard(node.name)

        background(prepare)

    def _stay(self, node: Node, error: LighterageError) -> None:
        if node not in self._refuses:
            self._refuses.add(node)
            _warn(f"{self._name} does not run on {node.name}: {error}")

    def _refusal(self, node: Node) -> LighterageError | None:
        return None if self._code is None else node.refusal(self._code.name)

    # Later

    def _anywhere(self, args: Any, kwargs: Any, cancel: Cancel) -> Any:
        size, bytes_up = self._sizes(args, kwargs)
        return self._decided(runtime.current, args, kwargs, size, bytes_up, cancel)

    def _submit(self, action: Callable[[Cancel], Any]) -> Future[Any]:
        from .later import CancellableFuture

        future = CancellableFuture()
        runtime.current.pool.submit(future.run, action)
        return future

    async def _later(self, args: Any, kwargs: Any) -> Any:
        """A call of an async function."""
        current = runtime.current
        size, bytes_up = self._sizes(args, kwargs)
        now = time.monotonic()
        nodes = self._places(current.usable(self.options.on, now))
        decision = self._decide(current, nodes, size, bytes_up, now)
        if decision.place != LOCAL:
            node = next(node for node in nodes if node.name == decision.place)
            options = replace(self.options, fallback=False, pure=False)
            alone = Offloaded(self.__lighterage_function__, options)
            import asyncio

            try:
                return await asyncio.wrap_future(self._submit(lambda cancel: alone._remote_only(args, kwargs, node, cancel)))
            except LighterageError:
                if not self.options.fallback:
                    raise
        began = time.perf_counter()
        result = self.__lighterage_function__(*args, **kwargs)
        result = await result if isinstance(result, Awaitable) else result
        self._learn_here(current, size, time.perf_counter() - began, 1, decision)
        for node in nodes:
            self._prepare_later(node)
        return result


class OffloadedOfClass(Offloaded[P, R]):
    """A class method that decides where it runs. Its class is known there too, and travels by its name."""

    def __get__(self, instance: object | None, owner: type | None = None) -> Any:
        return Method(self, type(instance) if owner is None else owner)


class Method:
    """An offloaded method of one object, which travels with the arguments; or of a class."""

    __slots__ = ("_function", "_instance")

    def __init__(self, function: Offloaded[Any, Any], instance: object) -> None:
        self._function = function
        self._instance = instance

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        return functools.partial(self._function.__lighterage_function__, self._instance)

    def __repr__(self) -> str:
        return f"<offloaded method {self._function._name} of {self._instance!r}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(self._instance, *args, **kwargs)

    def local(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the method here."""
        return self._function.local(self._instance, *args, **kwargs)

    def remote(self, *args: Any, on: str | Node | Iterable[str | Node] | None = None, **kwargs: Any) -> Any:
        """Calls the method on a node."""
        return self._function.remote(self._instance, *args, on=on, **kwargs)

    def submit(self, *args: Any, **kwargs: Any) -> Future[Any]:
        """Calls the method where it will finish first, and does not wait."""
        return self._function.submit(self._instance, *args, **kwargs)

    async def aio(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the method without holding up the event loop."""
        return await self._function.aio(self._instance, *args, **kwargs)

    def explain(self, *args: Any, **kwargs: Any) -> Explanation:
        """Where this call would run now, and why."""
        return self._function.explain(self._instance, *args, **kwargs)


class _Race:
    """A call on a node, and the same call here that may overtake it."""

    def __init__(self, cancel: Cancel) -> None:
        self.cancel = cancel
        self.began = time.monotonic()
        self.local: calls.Outcome | None = None
        self._is_over = False
        self._is_running = False
        self._done = threading.Condition()

    def begin_local(self) -> bool:
        """Whether the local call should still begin."""
        with self._done:
            if self._is_over or self.cancel.is_cancelled:
                return False
            self._is_running = True
            return True

    def local_won(self, outcome: calls.Outcome) -> bool:
        with self._done:
            self._is_running = False
            won = not self._is_over
            if won:
                self._is_over = True
                self.local = outcome
            self._done.notify_all()
        if won:
            self.cancel.cancel()
        return won

    def remote_won(self) -> None:
        with self._done:
            self._is_over = True

    def wait_for_local(self) -> calls.Outcome | None:
        """What the local call gave, if there is one; the one on the node has failed."""
        with self._done:
            while self._is_running and self.local is None:
                self._done.wait()
            self._is_over = True
            return self.local


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


def _only_bytes(args: Any, kwargs: Any) -> bytes | memoryview:
    if len(args) == 1 and not kwargs and isinstance(args[0], bytes | bytearray | memoryview):
        return memoryview(args[0]).cast("B")
    raise DoesNotTravel("a component takes one argument, which is bytes")


def _cancelled() -> BaseException:
    from concurrent.futures import CancelledError

    return CancelledError()


def _warn(text: str) -> None:
    """Warns of the line that called into this package."""
    level, caller = 2, sys._getframe(1)
    while caller.f_back is not None and caller.f_globals.get("__name__", "").startswith("lighterage."):
        level, caller = level + 1, caller.f_back
    warnings.warn(text, OffloadWarning, stacklevel=level)


def _done(function: Callable[..., R], args: Any, kwargs: Any) -> Future[R]:
    from concurrent.futures import Future

    future: Future[R] = Future()
    try:
        future.set_result(function(*args, **kwargs))
    except BaseException as error:
        future.set_exception(error)
    return future


def names(on: str | Node | Iterable[str | Node]) -> frozenset[str]:
    """The nodes that are meant by one, by names or by addresses."""
    if isinstance(on, str):
        return frozenset((on,))
    if not isinstance(on, Iterable):
        return frozenset((on.name,))
    return frozenset(one if isinstance(one, str) else one.name for one in on)


def _checked(options: dict[str, Any]) -> dict[str, Any]:
    """Options as they may be written: one node without a list, a lock by its file's name, limits by name."""
    options = dict(options)
    if options.get("on") is not None:
        options["on"] = names(options["on"])
    return options


@overload
def offload(function: Callable[P, R], /) -> Offloaded[P, R]: ...
@overload
def offload(
    *,
    pure: bool = ...,
    deadline: float | None = ...,
    on: str | Iterable[str | Node] | None = ...,
    size: Callable[..., float] | None = ...,
    retries: int = ...,
    fallback: bool = ...,
    local: bool = ...,
    lock: str | None = ...,
    any_version: bool = ...,
    codec: str = ...,
    compress: bool | None = ...,
    keep: bool = ...,
    component: str | None = ...,
    limits: Limits = ...,
) -> Callable[[Callable[P, R]], Offloaded[P, R]]: ...
def offload(function: Callable[P, R] | None = None, /, **options: Any) -> Any:
    """Lets a function run wherever it will finish first. `Options` has what it takes by name."""
    made = Options(**_checked(options))
    return _offloaded(function, made) if function is not None else lambda function: _offloaded(function, made)


def _offloaded(function: Any, options: Options) -> Offloaded[Any, Any]:
    if isinstance(function, staticmethod):
        raise TypeError("write @staticmethod above @offload")
    if isinstance(function, classmethod):
        return OffloadedOfClass(function.__func__, options)
    return Offloaded(function, options)

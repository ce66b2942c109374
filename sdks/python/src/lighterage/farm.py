"""`lighterage.map(f, xs)`: many calls of one function, farmed out over all nodes and this machine, results in order.

    xs ─▶ chunks ─▶ workers: some for each node, one here ─▶ results, in order, as they are asked for

A chunk is a few calls that travel as one, so that small tasks do not wait for the network one by one; it grows until it is
worth about twenty milliseconds. What a node did not finish goes to another, or is done here. Only so much is taken from
`xs` ahead of what was asked for as memory allows.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

from . import here
from .call import several
from .call.attempt import is_retried
from .call.function import BOUND, Bound, Function
from .call.measure import result_bytes, sizes
from .call.options import Options, names
from .code import code
from .decide import LOCAL
from .errors import CallTooLarge, DoesNotTravel, LighterageError, NodeRefused, NodeUnreachable, TimeIsUp, is_busy
from .places import runtime
from .places.node import Node
from .places.wire import Cancel, Cancelled
from .progress import Progress
from .timers import background
from .travel import calls, codecs, frame

R = TypeVar("R")
#: The arguments of one call after the other.
_Source = Iterator[tuple[Any, ...]]

#: Seconds of work that a chunk should be, and calls in it at most.
CHUNK_SECONDS: Final = 0.02
CHUNK_MAX: Final = 256
#: An item that takes less is taken to take so long.
ITEM_SECONDS_MIN: Final = 1e-5
#: Workers of one node at most; beside its cores there is one, so that none waits for the network.
WORKERS_MAX: Final = 16
#: Items and bytes that are taken or held ahead of what was asked for.
AHEAD_ITEMS: Final = 4_096
AHEAD_BYTES: Final = 256 << 20
#: Seconds between two looks at whether there is something to do.
PAUSE: Final = 0.05
#: Seconds after which a chunk that waits for more items is taken as it is, by a node and here: the next item may come only
#: once the first has its result. Nodes go first.
SLOW_SECONDS: Final = 0.05
SLOW_SECONDS_HERE: Final = 1.0
#: Seconds until a node that is full is asked again, and for which nodes that are full or silent are waited for while nothing
#: is done anywhere.
BUSY_SECONDS: Final = 0.05
STUCK_SECONDS: Final = 60.0


@dataclass
class _Chunk:
    """Items on their way: where the first stands, and the arguments of each."""

    first: int
    items: list[tuple[Any, ...]]
    tries: int = 0
    #: Nothing was tried with it yet, or all that may be tried was.
    only_here: bool = False


@dataclass
class _Shared:
    """What workers and reader look at, under one lock."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    source: _Source | None = None
    again: deque[_Chunk] = field(default_factory=deque)
    results: dict[int, calls.Outcome] = field(default_factory=dict)
    #: Items that were taken from the source for a chunk that is not whole yet, each with its bytes; all bytes; and
    #: since when the next one is waited for, none while nobody waits for one.
    pulled: list[tuple[tuple[Any, ...], int]] = field(default_factory=list)
    pulled_bytes: int = 0
    asked_at: float | None = None
    taken: int = 0
    given: int = 0
    done: int = 0
    #: Bytes by item, of its arguments until it is done, then of its result until that is handed out; and all bytes.
    held: dict[int, int] = field(default_factory=dict)
    held_bytes: int = 0
    #: The length of `xs`, where it has ended or says so.
    total: int | None = None
    is_closed: bool = False
    cancels: set[Cancel] = field(default_factory=set)
    nodes_alive: int = 0
    #: What a node said last that it did not do its work, and since when nodes have said such things and none did any.
    problem: LighterageError | None = None
    stuck_since: float | None = None
    counts: dict[str, int] = field(default_factory=dict)
    #: Seconds that one item takes on a node, and bytes of the largest result that came last.
    item_seconds: float = 0.0
    item_bytes: int = 0
    began: float = field(default_factory=time.monotonic)


@dataclass
class _Items:
    """What a map is of: the arguments of each call, how many there are, and what all calls have by name."""

    source: _Source
    total: int | None
    kwargs: dict[str, Any]


class Results(Generic[R]):
    """The results in order, as an iterator. Leaving it ends what still runs on nodes."""

    def __init__(self, farm: _Farm) -> None:
        self._farm = farm
        # Workers know the farm, not this: what nobody reads any more ends.
        self._end = weakref.finalize(self, farm.close)

    def __iter__(self) -> Iterator[R]:
        return self

    def __next__(self) -> R:
        result: R = self._farm.next()
        return result

    def __enter__(self) -> Results[R]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends what still runs."""
        self._end()


def map(
    function: Callable[..., R],
    *iterables: Iterable[Any],
    on: str | Node | Iterable[str | Node] | None = None,
    chunk: int | None = None,
    progress: bool | None = None,
    **kwargs: Any,
) -> Results[R] | Iterator[R]:
    """Calls a function with each item, on all nodes and here, and gives the results in order.

    What the function raises is raised where its result would stand, and ends the rest. `chunk` calls travel as one
    (without it: as many as are worth it); with `chunk=1` every call has fresh memory. `progress` shows a bar, or none;
    without it, there is one where stderr is a terminal.
    """
    bound = getattr(function, BOUND, None)
    made, first = bound if isinstance(bound, Bound) else (Function(function, Options()), ())
    if here.is_unit():
        return (calls.run(made.plain, (*first, *items), kwargs) for items in zip(*iterables, strict=False))
    lengths = [len(one) for one in iterables if isinstance(one, Sized)]
    total = min(lengths) if len(lengths) == len(iterables) and lengths else None
    source = (first + items for items in zip(*iterables, strict=False))
    farm = _Farm(made, _Items(source, total, kwargs), chunk, progress)
    farm.start(on)
    return Results(farm)


class _Farm:
    def __init__(self, function: Function, items: _Items, chunk: int | None, progress: bool | None) -> None:
        self._function = function
        self._options = function.options
        self._kwargs = items.kwargs
        if self._options.component is not None:
            raise ValueError("map sends several calls as one, which a component does not read: submit them one by one")
        # A codec of the study has no word for an exception among results.
        self._chunk = 1 if self._options.codec != codecs.FRAME else chunk
        self._shared = _Shared(source=items.source, total=items.total)
        self._progress = Progress(function.name, items.total, progress)
        self._slots = 1
        self._nodes: list[Node] = []

    def start(self, on: str | Node | Iterable[str | Node] | None) -> None:
        current = runtime.current
        made: code.Code | None = None
        wanted = on if on is not None else self._options.on
        if on is not None or current.nodes():
            try:
                found = self._function.made()
                made = found if isinstance(found, code.Code) else None
                self._nodes = current.chosen(None if wanted is None else names(wanted))
            except LighterageError:
                if on is not None or not self._options.local or not self._options.fallback:
                    raise
        elif not self._options.local:
            current.chosen(None)
        if made is not None:
            for node in self._nodes:
                workers = min(node.known.cores + 1 if node.known else 2, WORKERS_MAX)
                self._shared.nodes_alive += workers
                self._slots += workers
                for _ in range(workers):
                    background(functools.partial(self._work_there, node, made))
        if self._options.local:
            background(self._work_here)

    # The reader

    def next(self) -> Any:
        shared = self._shared
        with shared.changed:
            while shared.given not in shared.results:
                if shared.is_closed or (shared.total is not None and shared.given >= shared.total):
                    break
                shared.changed.wait(PAUSE)
                self._show()
            outcome = shared.results.pop(shared.given, None)
            if outcome is not None:
                shared.held_bytes -= shared.held.pop(shared.given, 0)
                shared.given += 1
                shared.changed.notify_all()
        if outcome is None:
            self.close()
            raise StopIteration
        if outcome.error is not None:
            self.close()
            raise outcome.error
        return outcome.value

    def close(self) -> None:
        shared = self._shared
        with shared.changed:
            if shared.is_closed:
                return
            shared.is_closed = True
            cancels = list(shared.cancels)
            shared.results.clear()
            shared.again.clear()
            shared.pulled.clear()
            shared.source = None
            shared.changed.notify_all()
        for cancel in cancels:
            cancel.cancel()
        self._progress.end(shared.done, self._where())

    # Taking

    def _take(self, is_here: bool) -> _Chunk | None:
        """The next chunk; none at the end. Waits while there is nothing to do, or enough was done ahead."""
        shared = self._shared
        while True:
            with shared.changed:
                chunk, source = self._look(is_here)
                if chunk is None and source is None:
                    return None
                count = 1 if is_here else self._chunk_size()
            if chunk is None and source is not None:
                chunk = self._pull(source, count)
            if chunk is not None:
                return chunk

    def _look(self, is_here: bool) -> tuple[_Chunk | None, _Source | None]:
        """A chunk that is there, or what the next one is pulled from; neither at the end."""
        shared = self._shared
        while not shared.is_closed:
            if shared.again and (is_here or not shared.again[0].only_here):
                return shared.again.popleft(), None
            if shared.pulled and shared.asked_at is not None:
                if time.monotonic() - shared.asked_at > (SLOW_SECONDS_HERE if is_here else SLOW_SECONDS):
                    return self._cut(), None
            elif shared.source is None:
                if shared.total is not None and shared.done >= shared.total:
                    return None, None
            elif shared.asked_at is None and self._has_room() and not (is_here and not self._is_worth_it_here()):
                shared.asked_at = time.monotonic()
                return None, shared.source
            shared.changed.wait(PAUSE)
        return None, None

    def _has_room(self) -> bool:
        shared = self._shared
        ahead = shared.taken - shared.given
        if ahead >= AHEAD_ITEMS:
            return False
        return shared.held_bytes < AHEAD_BYTES or ahead < self._slots

    def _pull(self, source: _Source, count: int) -> _Chunk | None:
        """A chunk of so many items. One worker at a time, and without the lock: an item may come only once another one has
        its result.
        """
        shared = self._shared
        while True:
            item, size, error = None, 0, None
            try:
                item = next(source)
                size = sizes(item)[1]
            except BaseException as problem:  # Said where the result would stand, or nobody would ever hear of it.
                error = problem
            with shared.changed:
                if shared.is_closed:
                    return None
                if error is not None:
                    self._ended(error)
                elif item is not None:
                    shared.pulled.append((item, size))
                    shared.pulled_bytes += size
                    if len(shared.pulled) < count and shared.pulled_bytes < AHEAD_BYTES // 16:
                        shared.asked_at = time.monotonic()
                        continue
                shared.asked_at = None
                shared.changed.notify_all()
                return self._cut()

    def _cut(self) -> _Chunk | None:
        """What was pulled, as a chunk."""
        shared = self._shared
        if not shared.pulled:
            return None
        chunk = _Chunk(shared.taken, [item for item, _ in shared.pulled])
        for at, (_, size) in enumerate(shared.pulled, chunk.first):
            self._hold(at, size)
        shared.pulled, shared.pulled_bytes = [], 0
        shared.taken += len(chunk.items)
        if shared.total is not None and shared.taken >= shared.total:
            shared.source = None
        return chunk

    def _hold(self, at: int, size: int) -> None:
        """So many bytes are held for an item from now on."""
        shared = self._shared
        shared.held_bytes += size - shared.held.get(at, 0)
        shared.held[at] = size

    def _ended(self, error: BaseException) -> None:
        """There are no more items; or they could not be had, which is said where they would have stood."""
        shared = self._shared
        shared.source, shared.total = None, shared.taken + len(shared.pulled)
        if not isinstance(error, StopIteration):
            shared.results[shared.total] = calls.Outcome(error=error)
            shared.total += 1
            shared.done += 1

    def _chunk_size(self) -> int:
        shared = self._shared
        room = max(1, AHEAD_ITEMS - (shared.taken - shared.given))
        if self._chunk is not None:
            return min(self._chunk, room)
        is_alone = shared.nodes_alive == 1 and not self._options.local
        if not shared.item_seconds or is_alone:
            # One that is alone cannot give others what it has while it waits for more.
            return 1
        # The results of a chunk come all at once: they are as few bytes as its arguments.
        wanted = min(int(CHUNK_SECONDS / shared.item_seconds), AHEAD_BYTES // 16 // max(shared.item_bytes, 1))
        if shared.total is not None:
            # At the end, small chunks: nobody should wait for one long one.
            wanted = min(wanted, (shared.total - shared.taken) // (2 * self._slots))
        return max(1, min(wanted, room, CHUNK_MAX))

    def _is_worth_it_here(self) -> bool:
        """Whether an item that is begun here now ends before the nodes are done with all of them."""
        shared = self._shared
        if not shared.nodes_alive or all(node.has_failed for node in self._nodes):
            return True
        there = shared.done - shared.counts.get(LOCAL, 0)
        if not there:
            # Nothing is known yet, and the nodes go first: an item that is begun here cannot be given to them.
            return False
        with runtime.current.lock:
            guess = runtime.current.engine.work(self._function.name).local
            mine = guess.guess(guess.typical).mean if guess.count else shared.item_seconds
        rate = there / (time.monotonic() - shared.began)
        left = (shared.total - shared.taken) if shared.total is not None else AHEAD_ITEMS
        return mine < left / rate

    # Working

    def _work_here(self) -> None:
        while (chunk := self._take(True)) is not None:
            self._put(chunk, self._run_here(chunk), LOCAL)

    def _run_here(self, chunk: _Chunk) -> list[calls.Outcome]:
        try:
            # What `size=` of the user raises is said as a call outside of `map` says it.
            size, _ = self._function.sizes(chunk.items[0], self._kwargs)
        except BaseException as error:
            return [calls.Outcome(error=error)]
        outcomes = []
        began = time.perf_counter()
        for item in chunk.items:
            try:
                outcomes.append(calls.Outcome(calls.run(self._function.plain, item, self._kwargs)))
            except BaseException as error:
                outcomes.append(calls.Outcome(error=error))
                break
        took = (time.perf_counter() - began) / len(outcomes)
        with runtime.current.lock:
            runtime.current.engine.observe_local(self._function.name, size, took)
            runtime.current.stats_of(self._function.name).ran(LOCAL, took * len(outcomes), len(outcomes))
        return outcomes

    def _work_there(self, node: Node, made: code.Code) -> None:
        current = runtime.current
        try:
            while (chunk := self._take_there(node)) is not None:
                try:
                    outcomes = self._call(node, made, chunk)
                except Cancelled:
                    return
                except LighterageError as error:
                    current.stats_of(self._function.name).failed(error)
                    if isinstance(error, ConnectionError | TimeIsUp):
                        # Before others can take the chunk: none of them tries it here until the node has answered.
                        current.failed(node)
                    self._give_back(chunk, error)
                    if isinstance(error, NodeRefused) and is_busy(error):
                        if self._is_stuck():
                            return
                        time.sleep(max(BUSY_SECONDS, min(error.retry_after, 5.0)))
                    elif _is_of_node(error):
                        # It will not do better next time.
                        return
                    continue
                except BaseException as error:  # Said where the result would stand, or nobody would ever hear of it.
                    outcomes = [calls.Outcome(error=error)]
                self._put(chunk, outcomes, node.name)
        finally:
            with self._shared.changed:
                self._shared.nodes_alive -= 1
                self._shared.changed.notify_all()
                alone = not self._shared.nodes_alive and not self._options.local
            if alone and not self._is_over():
                self._fail(self._shared.problem or NodeUnreachable("no node is left that would do the rest"))

    def _take_there(self, node: Node) -> _Chunk | None:
        """The next chunk for a node, once it answers; none at the end, or where it was waited for long enough."""
        shared = self._shared
        while not self._is_over():
            if node.has_failed:
                # It is asked in the background whether it is back: no item is spent on that.
                with shared.changed:
                    shared.stuck_since = shared.stuck_since or time.monotonic()
                if self._is_stuck():
                    return None
                time.sleep(PAUSE)
                continue
            chunk = self._take(False)
            if chunk is None or not node.has_failed:
                return chunk
            with shared.changed:
                shared.again.appendleft(chunk)
                shared.changed.notify_all()
        return None

    def _call(self, node: Node, made: code.Code, chunk: _Chunk) -> list[calls.Outcome]:
        shared, cancel = self._shared, Cancel()
        began = time.perf_counter()
        pieces = several.write(self._function, made, node, chunk.items, self._kwargs)
        bytes_up = frame.total_bytes(pieces)
        with shared.changed:
            if shared.is_closed:
                raise Cancelled
            shared.cancels.add(cancel)
        try:
            runtime.current.prepare(node, made, cancel=cancel)
            limit = time.monotonic() + self._function.time_limit(bytes_up)
            reply = node.call(made, pieces, limit, cancel)
            outcomes = several.read(node, reply, made, len(chunk.items))
        finally:
            with shared.changed:
                shared.cancels.discard(cancel)
        seconds = (time.perf_counter() - began) / len(chunk.items)
        # What a call costs beside its work is what chunks are for. What a node says is no more than what was seen here.
        run = max(min(reply.timing.get("run", 0.0) / len(chunk.items), seconds), ITEM_SECONDS_MIN)
        with shared.changed:
            shared.item_seconds = run if not shared.item_seconds else 0.7 * shared.item_seconds + 0.3 * run
        with runtime.current.lock:
            stats = runtime.current.stats_of(self._function.name)
            stats.ran(node.name, seconds * len(outcomes), len(outcomes))
            stats.bytes_up += bytes_up
            stats.bytes_down += reply.body.nbytes
        return outcomes

    # Giving

    def _put(self, chunk: _Chunk, outcomes: list[calls.Outcome], place: str) -> None:
        shared = self._shared
        weights = [result_bytes(outcome.value) or 0 for outcome in outcomes]
        with shared.changed:
            if shared.is_closed:
                return
            for at, outcome in enumerate(outcomes):
                shared.results[chunk.first + at] = outcome
                self._hold(chunk.first + at, weights[at])
            shared.item_bytes = max(weights)
            shared.done += len(outcomes)
            shared.stuck_since = None
            shared.counts[place] = shared.counts.get(place, 0) + len(outcomes)
            shared.changed.notify_all()

    def _give_back(self, chunk: _Chunk, error: LighterageError) -> None:
        """A node did not do it: another try, or here, or it is the end."""
        is_of_node = _is_of_node(error)
        chunk.tries += not is_of_node
        never = isinstance(error, DoesNotTravel | CallTooLarge) and len(chunk.items) == 1
        if never or chunk.tries > self._options.retries + 1:
            if not (self._options.local and self._options.fallback):
                self._put(chunk, [calls.Outcome(error=error)], "")
                return
            chunk.only_here = True
        halves = [chunk]
        if len(chunk.items) > 1 and not is_of_node:
            # One of them may be what the node does not bear.
            halves = [replace(chunk, first=at, items=[item]) for at, item in enumerate(chunk.items, chunk.first)]
        with self._shared.changed:
            self._shared.problem = error
            self._shared.stuck_since = self._shared.stuck_since or time.monotonic()
            if chunk.only_here:
                self._shared.again.extend(halves)
            else:
                self._shared.again.extendleft(reversed(halves))
            self._shared.changed.notify_all()

    def _fail(self, error: LighterageError) -> None:
        """Nobody does the rest: that is said where the first result is missing."""
        shared = self._shared
        with shared.changed:
            missing = next(at for at in itertools.count(shared.given) if at not in shared.results)
            shared.results[missing] = calls.Outcome(error=error)
            shared.changed.notify_all()

    def _is_stuck(self) -> bool:
        """Whether nodes were waited for long enough."""
        since = self._shared.stuck_since
        return since is not None and time.monotonic() - since > STUCK_SECONDS

    def _is_over(self) -> bool:
        shared = self._shared
        return shared.is_closed or (shared.total is not None and shared.done >= shared.total)

    def _show(self) -> None:
        self._progress.show(self._shared.done, self._where())

    def _where(self) -> str:
        return ", ".join(f"{place} {count}" for place, count in sorted(self._shared.counts.items()))


def _is_of_node(error: LighterageError) -> bool:
    """Whether the node would say so of any item: it is full, or takes neither the function nor who calls it."""
    return is_retried(error) and not isinstance(error, ConnectionError)

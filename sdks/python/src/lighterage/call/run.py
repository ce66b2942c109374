"""Runs one call where it was decided to: here, on a node, or at both; and wherever it still can when that fails.

    Call ─▶ decide ─▶ here     plain call, timed
                   ─▶ watched  in a helper; on the node as well once it is late ─┐
                   ─▶ there    on the node; here as well once that is late ──────┴▶ first outcome wins, both are learnt from
                               failed: attempts at other nodes, then here

What a unit does reaches nobody but through its result, so running a call again is always safe as far as nodes go.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from ..decide import LOCAL, Decision, Prediction
from ..errors import LighterageError, NoNode, TimeIsUp, VersionsDiffer
from ..places.wire import Cancel, Cancelled
from . import learn
from .attempt import Attempt, is_in_vain, is_retried
from .choose import decide, soonest_first
from .options import names

if TYPE_CHECKING:
    from ..places.node import Node
    from ..timers import Timer
    from ..travel.calls import Outcome
    from .call import Call
    from .race import Race

#: A function that is done here sooner than this is not worth putting on a node.
WORTH_SECONDS: Final = 0.5e-3
#: Seconds that a node is waited for at least, before the call is run here instead.
PATIENCE_SECONDS: Final = 1.0
#: A thread that is so late for its turn may have been kept from it. What kept it is given so long to end, and this part of
#: the time that it took.
HELD_SECONDS: Final = 0.02
HELD_PART: Final = 0.1
#: Seconds after which the other place is tried at the latest. An estimate may be any number of years, a wait may not.
RIVAL_SECONDS_MAX: Final = 86_400.0


def as_decided(call: Call, decision: Decision, nodes: list[Node]) -> Any:
    """Runs the call as it was decided among these nodes."""
    if decision.place != LOCAL:
        return there(call, decision, _named(nodes, decision.place))
    if decision.rival is not None:
        return _watched(call, decision, nodes)
    return here(call, decision, nodes)


# Here


def here(call: Call, decision: Decision | None = None, nodes: Iterable[Node] = ()) -> Any:
    """A plain call, timed."""
    is_disturbed = call.current.is_disturbed
    began = time.perf_counter()
    result = call.function.plain(*call.args, **call.kwargs)
    if call.function.is_async:
        import asyncio

        # This thread is one of those that `submit` has, without an event loop.
        result = asyncio.run(result)
    took = time.perf_counter() - began
    learn.ran_here(call, took, decision, is_disturbed)
    learn.returned(call, result)
    _prepare_where_it_pays(call, took, nodes)
    return result


def _prepare_where_it_pays(call: Call, seconds: float, nodes: Iterable[Node]) -> None:
    if seconds >= WORTH_SECONDS:
        for node in nodes:
            call.function.prepare_later(node)


# At two places


def _watched(call: Call, decision: Decision, nodes: list[Node]) -> Any:
    """Runs the call here in a helper, and on the node as well once it has taken too long."""
    race = _race(call)
    is_disturbed = call.current.is_disturbed
    race.hand(call.current.helpers)
    try:
        after = min(decision.rival_after, RIVAL_SECONDS_MAX)
        outcome = race.wait_here(after)
        waited = time.monotonic() - race.handed_at
        if waited > after + HELD_SECONDS:
            # This thread had no turn when it wanted one: until the other was done, or nearly so?
            outcome = race.wait_here(max(HELD_SECONDS, HELD_PART * waited))
            learn.held(call, outcome is not None)
        elif outcome is None:
            learn.held(call, False)
    except BaseException:
        race.abandon()
        raise
    if outcome is None:
        return there(call, decision, _named(nodes, str(decision.rival)), race)
    took = race.here_ended - race.here_began
    learn.helped(call.current, time.monotonic() - race.handed_at - took)
    learn.ran_here(call, took, decision, is_disturbed)
    if outcome.error is None:
        learn.returned(call, outcome.value)
    _prepare_where_it_pays(call, took, nodes)
    return outcome.get()


def there(call: Call, decision: Decision, node: Node, race: Race | None = None) -> Any:
    """Runs the call on a node, and here as well: in `race`, or once it is late. Where no node does it, here."""
    outcome = on_nodes(call, decision, node, race)
    return here(call) if outcome is None else outcome.get()


def on_nodes(call: Call, decision: Decision, node: Node, race: Race | None = None) -> Outcome | None:
    """What the call comes to as `there` runs it; None where no node did it and it is left to run here."""
    began = time.monotonic()
    deadline = call.function.options.deadline
    attempt = Attempt(call, node, began + call.function.time_limit(call.bytes_up), decision, race)
    if deadline is not None:
        attempt.until = min(attempt.until, (began if race is None else race.began) + deadline)
    timer = _watch(attempt, began) if race is None else None
    outcome, problem = None, None
    try:
        outcome = _outcome(attempt)
    except LighterageError as error:
        problem = error
    finally:
        if timer is not None:
            timer.cancel()
    if problem is not None:
        return _failed(attempt, problem, began)
    race = attempt.race
    if race is not None and (outcome is None or race.is_doubled):
        learn.raced(attempt, race)
        if race.outcome is not None:
            outcome = race.outcome
            if outcome.error is None:
                learn.returned(call, outcome.value)
    assert outcome is not None
    return outcome


def _watch(attempt: Attempt, began: float) -> Timer | None:
    """What is done when the attempt is late: the call runs here as well, or it is given up."""
    call, options = attempt.call, attempt.call.function.options
    decision, expected = attempt.decision, attempt.prediction
    if not options.fallback or decision is None:
        return None
    patience = _patience(decision, expected)
    if options.deadline is not None:
        patience = min(patience, max(options.deadline - decision.predictions[0].p95, expected.seconds))
    if decision.rival is not None:
        attempt.race = _race(call)
        return call.current.timers.after(min(decision.rival_after, patience, RIVAL_SECONDS_MAX), attempt.race.run_here)
    if options.local:
        attempt.until = min(attempt.until, began + patience)
    return None


def _patience(decision: Decision, expected: Prediction) -> float:
    """Seconds that a node is waited for which is expected to take so long, where the call may run here instead."""
    return max(2 * expected.p95 + decision.predictions[0].p95, expected.wait + PATIENCE_SECONDS)


def _outcome(attempt: Attempt) -> Outcome | None:
    """What the attempt came to. None where the half here was first, or is what is left."""
    race = attempt.race
    try:
        return attempt.run() if race is None or race.begin_there() else None
    except Cancelled:
        if race is not None and race.outcome is not None:
            return None
        if race is not None:
            race.abandon()
        raise _cancelled() from None
    except LighterageError as error:
        learn.failed(attempt.call, error, is_in_vain(error))
        if isinstance(error, VersionsDiffer):
            attempt.call.function.stay(attempt.node, error)
        if race is None or race.there_failed() is None:
            raise
        return None
    except BaseException:
        if race is not None:
            race.abandon()
        raise


def _race(call: Call) -> Race:
    from .race import Race

    current, name = call.current, call.function.name
    race = Race(functools.partial(call.function.plain, *call.args, **call.kwargs), call.cancel or Cancel())

    def end(is_stopped: bool) -> None:
        current.ended(race)
        with current.lock:
            current.engine.observe_stopped(name, is_stopped)

    race.on_end = end
    return race


# When a node fails


def _failed(attempt: Attempt, error: LighterageError, began: float) -> Outcome | None:
    """What is left when the node that was decided for did not do it: one that is better than here, or None."""
    options = attempt.call.function.options
    if not options.fallback and not is_retried(error):
        raise error
    wanted_by = math.inf if options.deadline is None else began + options.deadline
    if isinstance(error, TimeIsUp):
        now = time.monotonic()
        if not error.is_of_deployment:
            learn.took_longer(attempt, now - began, now)
        if now >= wanted_by:
            raise error

    def goes_on(error: LighterageError) -> bool:
        return not isinstance(error, TimeIsUp) or time.monotonic() < wanted_by

    try:
        return _done(_others(attempt, wanted_by) if is_retried(error) else (), error, goes_on)
    except LighterageError as last:
        if not options.fallback or not goes_on(last):
            raise
    return None


def remote_only(call: Call, on: str | Node | Iterable[str | Node] | None) -> Any:
    """On a node and nowhere else; of several the one that is expected to be soonest, then the next."""
    return _done(_soonest(call, on), NoNode("no node is known"), is_retried).get()


def _done(attempts: Iterable[Attempt], error: LighterageError, goes_on: Callable[[LighterageError], bool]) -> Outcome:
    """The outcome of the first of these attempts that is done. Raises what kept the last one, or after which none `goes_on`."""
    for attempt in attempts:
        try:
            return attempt.run()
        except Cancelled:
            raise _cancelled() from None
        except LighterageError as problem:
            learn.failed(attempt.call, problem, is_in_vain(problem))
            error = problem
            if not goes_on(problem):
                break
    raise error


def _others(failed: Attempt, wanted_by: float) -> Iterator[Attempt]:
    """Attempts at nodes that have not been tried, while one is known to be better than here."""
    call, function = failed.call, failed.call.function
    options, tried = function.options, {failed.node.name}
    for _ in range(options.retries):
        now = time.monotonic()
        nodes = [node for node in function.places(call.current.usable(options.on, now)) if node.name not in tried]
        if not nodes:
            return
        decision = decide(call, nodes, now)
        if decision.place == LOCAL and options.fallback:
            return
        node = nodes[0] if decision.place == LOCAL else _named(nodes, decision.place)
        tried.add(node.name)
        attempt = Attempt(call, node, min(now + function.time_limit(call.bytes_up), wanted_by), decision)
        if options.fallback and options.local:
            attempt.until = min(attempt.until, now + _patience(decision, attempt.prediction))
        yield attempt


def _soonest(call: Call, on: str | Node | Iterable[str | Node] | None) -> Iterator[Attempt]:
    """Attempts at the nodes that were asked for, the soonest first."""
    function, options = call.function, call.function.options
    nodes = function.places(call.current.chosen(names(on) if on is not None else options.on))
    function.made()
    now = time.monotonic()
    until = now + (options.deadline if options.deadline is not None else function.time_limit(call.bytes_up))
    for node in soonest_first(call, nodes, now)[: 1 + options.retries]:
        yield Attempt(call, node, until)


def _named(nodes: list[Node], name: str) -> Node:
    return next(node for node in nodes if node.name == name)


def _cancelled() -> BaseException:
    from concurrent.futures import CancelledError

    return CancelledError()

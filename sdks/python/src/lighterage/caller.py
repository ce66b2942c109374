"""Runs one call where it was decided to: here, on a node, or at both; and wherever it still can when that fails.

    here     plain call, timed
    watched  in a helper; on the node as well once it is late ─┐
    there    on the node; here as well once that is late ──────┴▶ first result wins, both are learnt from
             failed: another node, then here

What a unit does reaches nobody but through its result, so running a call again is always safe as far as nodes go.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from . import runtime
from .carrier import RATE_BYTES_MIN, Carrier, is_retried
from .decide import LOCAL, Decision, Prediction, alone
from .errors import DoesNotTravel, LighterageError, NoNode, TimeIsUp, VersionsDiffer
from .measure import result_bytes
from .options import Options, names
from .runtime import Runtime
from .wire import Cancel, Cancelled

if TYPE_CHECKING:
    from . import calls
    from .node import Node
    from .race import Race

#: A function that is done here sooner than this is not worth putting on a node.
WORTH_SECONDS: Final = 0.5e-3
#: Seconds that a node is waited for at least, before the call is run here instead.
PATIENCE_SECONDS: Final = 1.0
#: A thread that is so late for its turn may have been kept from it. What kept it is given so long to end, and this part of
#: the time that it took.
HELD_SECONDS: Final = 0.02
HELD_PART: Final = 0.1
#: Weight of the newest measurement in what a helper costs.
HELPER_GAIN: Final = 0.2


@dataclass(slots=True)
class Call:
    """One call of a function, and what it is taken to weigh."""

    current: Runtime
    args: Any
    kwargs: Any
    size: float
    bytes_up: int
    cancel: Cancel | None = None


#: Decides anew among these nodes, at this time.
Decide = Callable[[Call, "list[Node]", float], Decision]


class Caller:
    """Runs the calls of one function. Safe for threads."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        options: Options,
        carrier: Carrier,
        places: Callable[[list[Node]], list[Node]],
        decide: Decide,
    ) -> None:
        self._function = function
        self._name = name
        self._options = options
        self._carrier = carrier
        self._places = places
        self._decide = decide

    # Here

    def here(self, call: Call, decision: Decision | None, nodes: Iterable[Node] = ()) -> Any:
        """A plain call, timed."""
        is_disturbed = call.current.is_disturbed
        began = time.perf_counter()
        result = self._function(*call.args, **call.kwargs)
        took = time.perf_counter() - began
        self.learn_here(call, took, 1, decision, is_disturbed)
        self.learn_result(call, result)
        self._prepare_where_it_pays(took, nodes)
        return result

    def learn_here(self, call: Call, seconds: float, count: int, decision: Decision | None, is_disturbed: bool = False) -> None:
        current = call.current
        with current.lock:
            current.engine.observe_local(self._name, call.size, seconds, decision, is_disturbed)
            current.stats_of(self._name).ran(LOCAL, seconds * count, count)

    def learn_result(self, call: Call, result: Any) -> None:
        """What an answer would bring back from a node, until one has said so itself."""
        current = call.current
        with current.lock:
            if current.engine.knows_result(self._name):
                return
        found = result_bytes(result)
        if found is not None:
            with current.lock:
                current.engine.observe_result(self._name, call.size, found)

    def _prepare_where_it_pays(self, seconds: float, nodes: Iterable[Node]) -> None:
        if seconds >= WORTH_SECONDS:
            for node in nodes:
                self._carrier.prepare_later(node)

    # At two places

    def watched(self, call: Call, node: Node, decision: Decision, nodes: Iterable[Node]) -> Any:
        """Runs the call here in a helper, and on the node as well once it has taken too long."""
        current, race = call.current, self._race(call)
        is_disturbed = current.is_disturbed
        race.hand(current.helpers)
        try:
            outcome = race.wait_here(decision.rival_after)
            waited = time.monotonic() - race.handed_at
            if waited > decision.rival_after + HELD_SECONDS:
                # This thread had no turn when it wanted one: until the other was done, or nearly so?
                outcome = race.wait_here(max(HELD_SECONDS, HELD_PART * waited))
                self._learn_held(current, outcome is not None)
            elif outcome is None:
                self._learn_held(current, False)
        except BaseException:
            race.abandon()
            raise
        if outcome is None:
            return self.there(call, node, decision, race)
        took = race.here_ended - race.here_began
        spent = time.monotonic() - race.handed_at - took
        with current.lock:
            current.engine.helper_seconds += HELPER_GAIN * (spent - current.engine.helper_seconds)
        self.learn_here(call, took, 1, decision, is_disturbed)
        if outcome.error is None:
            self.learn_result(call, outcome.value)
        self._prepare_where_it_pays(took, nodes)
        return outcome.get()

    def _learn_held(self, current: Runtime, is_held: bool) -> None:
        with current.lock:
            current.engine.observe_held(self._name, is_held)

    def there(self, call: Call, node: Node, decision: Decision, race: Race | None = None) -> Any:
        """Runs the call on a node, and here as well: in `race`, or once it is late."""
        options, began = self._options, time.monotonic()
        there = next(prediction for prediction in decision.predictions if prediction.place == node.name)
        here = decision.predictions[0]
        give_up = began + self._carrier.time_limit(call.bytes_up)
        if options.deadline is not None:
            give_up = min(give_up, (began if race is None else race.began) + options.deadline)
        timer = None
        if race is None and options.fallback:
            patience = max(2 * there.p95 + here.p95, there.wait + PATIENCE_SECONDS)
            if options.deadline is not None:
                patience = min(patience, max(options.deadline - here.p95, there.seconds))
            if decision.rival is not None:
                race = self._race(call)
                timer = call.current.timers.after(min(decision.rival_after, patience), race.run_here)
            elif options.local:
                give_up = min(give_up, began + patience)
        outcome, problem = None, None
        try:
            if race is None:
                outcome = self._attempt(call, node, decision, give_up)
            elif race.begin_there():
                outcome = self._attempt(call, node, decision, give_up, race)
        except Cancelled:
            if race is None or race.outcome is None:
                if race is not None:
                    race.abandon()
                raise _cancelled() from None
        except LighterageError as error:
            call.current.stats_of(self._name).failed(error)
            if isinstance(error, VersionsDiffer):
                self._carrier.stay(node, error)
            if race is None or race.there_failed() is None:
                problem = error
        except BaseException:
            if race is not None:
                race.abandon()
            raise
        finally:
            if timer is not None:
                timer.cancel()
        if problem is not None:
            return self._failed(call, node, there, problem, began)
        if race is not None and (outcome is None or race.is_doubled):
            return self._raced(call, node, there, decision, race, outcome)
        assert outcome is not None
        return outcome.get()

    def _attempt(
        self,
        call: Call,
        node: Node,
        decision: Decision,
        give_up: float,
        race: Race | None = None,
    ) -> calls.Outcome:
        sized = call.size, call.bytes_up
        cancel = race.cancel if race is not None else call.cancel or Cancel()
        outcome = self._carrier.attempt(call.current, node, call.args, call.kwargs, sized, decision, cancel, give_up, race)
        if isinstance(outcome.error, DoesNotTravel) and self._options.fallback:
            # Its result does not. Here it need not.
            raise outcome.error
        return outcome

    def _race(self, call: Call) -> Race:
        from .race import Race

        current = call.current
        race = Race(functools.partial(self._function, *call.args, **call.kwargs), call.cancel or Cancel())

        def end(is_stopped: bool) -> None:
            current.ended(race)
            with current.lock:
                current.engine.observe_stopped(self._name, is_stopped)

        race.on_end = end
        return race

    def _raced(
        self,
        call: Call,
        node: Node,
        there: Prediction,
        decision: Decision,
        race: Race,
        outcome: calls.Outcome | None,
    ) -> Any:
        """The result of a call that may have run at two places, once both halves have been learnt from."""
        current, engine, now = call.current, call.current.engine, time.monotonic()
        seconds_there, computed = race.there()
        here_won = race.outcome is not None
        with current.lock:
            stats = current.stats_of(self._name)
            if race.is_doubled:
                extra = computed if here_won else now - race.here_began
                engine.observe_raced(self._name, decision, LOCAL if here_won else node.name, seconds_there, extra)
                stats.doubled += 1
                stats.doubled_here += here_won
            if not here_won:
                engine.observe_local_longer(self._name, call.size, now - race.here_began)
            else:
                took = race.here_ended - race.here_began
                engine.observe_local(self._name, call.size, took, decision, current.is_disturbed)
                stats.ran(LOCAL, took)
                if race.sending is not None and race.sending[0] >= RATE_BYTES_MIN:
                    engine.place(node.name).observe_transfer(race.sending, None, now)
                elif race.was_asked:
                    seconds = alone(seconds_there, took)
                    engine.observe_remote_longer(self._name, node.name, call.size, there, seconds, now)
        won = race.outcome if race.outcome is not None else outcome
        assert won is not None
        if here_won and won.error is None:
            self.learn_result(call, won.value)
        return won.get()

    # When a node fails

    def _failed(self, call: Call, node: Node, there: Prediction, error: LighterageError, began: float) -> Any:
        current, options = call.current, self._options
        if not options.fallback and not is_retried(error):
            raise error
        if isinstance(error, TimeIsUp):
            now = time.monotonic()
            with current.lock:
                current.engine.observe_remote_longer(self._name, node.name, call.size, there, now - began, now)
            if options.deadline is not None and now >= began + options.deadline:
                raise error
        return self._elsewhere(call, node, error, began)

    def _elsewhere(self, call: Call, failed: Node, error: LighterageError, began: float) -> Any:
        """Another node where one is known to be better than here, else here."""
        tried = {failed.name}
        options = self._options
        wanted_by = math.inf if options.deadline is None else began + options.deadline
        for _ in range(options.retries if is_retried(error) else 0):
            now = time.monotonic()
            nodes = [node for node in self._places(call.current.usable(options.on, now)) if node.name not in tried]
            if not nodes:
                break
            decision = self._decide(call, nodes, now)
            if decision.place == LOCAL and options.fallback:
                break
            place = decision.place if decision.place != LOCAL else nodes[0].name
            node = next(node for node in nodes if node.name == place)
            tried.add(node.name)
            try:
                limit = min(now + self._carrier.time_limit(call.bytes_up), wanted_by)
                outcome = self._attempt(call, node, decision, limit)
            except Cancelled:
                raise _cancelled() from None
            except LighterageError as other:
                call.current.stats_of(self._name).failed(other)
                error = other
                if isinstance(error, TimeIsUp) and time.monotonic() >= wanted_by:
                    raise
            else:
                return outcome.get()
        if not options.fallback:
            raise error
        return self.here(call, None)

    def remote_only(self, call: Call, on: str | Node | Iterable[str | Node] | None) -> Any:
        """On a node and nowhere else; of several the one that is expected to be soonest, then the next."""
        current, options = runtime.current, self._options
        nodes = self._places(current.chosen(names(on) if on is not None else options.on))
        self._carrier.made()
        cancel = call.cancel or Cancel()
        began = time.monotonic()
        limit = began + (options.deadline if options.deadline is not None else self._carrier.time_limit(call.bytes_up))
        predictions = self._predict(call, nodes, began) if len(nodes) > 1 else {}
        nodes = sorted(nodes, key=lambda node: (node.is_away(began), predictions.get(node.name, 0.0)))
        problem: LighterageError = NoNode("no node is known")
        for node in nodes[: 1 + options.retries]:
            sized = call.size, call.bytes_up
            try:
                outcome = self._carrier.attempt(current, node, call.args, call.kwargs, sized, None, cancel, limit)
            except Cancelled:
                raise _cancelled() from None
            except LighterageError as error:
                current.stats_of(self._name).failed(error)
                if not is_retried(error):
                    raise
                problem = error
            else:
                return outcome.get()
        raise problem

    def _predict(self, call: Call, nodes: list[Node], now: float) -> dict[str, float]:
        with call.current.lock:
            engine, places = call.current.engine, [node.name for node in nodes]
            found = engine.predict(self._name, call.size, call.bytes_up, places, now)
        return {prediction.place: prediction.seconds for prediction in found}


def _cancelled() -> BaseException:
    from concurrent.futures import CancelledError

    return CancelledError()

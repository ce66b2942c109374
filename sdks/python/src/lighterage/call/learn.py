"""What is learnt from a call: how long it took and where, told to the engine and counted in `stats`."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..decide import LOCAL, Decision, Stages, alone
from .measure import result_bytes

if TYPE_CHECKING:
    from ..places.runtime import Runtime
    from ..places.wire import Reply
    from .attempt import Attempt
    from .call import Call
    from .race import Race

#: Calls that follow each other sooner are not all learnt from: they would say the same.
LEARN_SECONDS: Final = 2e-3
#: Bytes of a transfer that says something about the rate.
RATE_BYTES_MIN: Final = 16_384
#: Weight of the newest measurement in what a helper costs, and seconds that one may say at most: what took longer was
#: something else that this machine did meanwhile.
HELPER_GAIN: Final = 0.2
HELPER_SECONDS_MAX: Final = 5e-3


@dataclass(slots=True)
class Answer:
    """What a node said to a call, and what that took here."""

    reply: Reply
    bytes_up: int
    #: Seconds of writing the call and of reading the reply.
    encoded: float
    decoded: float


def ran_here(call: Call, seconds: float, decision: Decision | None, is_disturbed: bool = False) -> None:
    """A call ran here to its end."""
    with call.current.lock:
        call.current.engine.observe_local(call.function.name, call.size, seconds, decision, is_disturbed)
        call.current.stats_of(call.function.name).ran(LOCAL, seconds)
    _report(call, LOCAL, decision, seconds)


def _report(call: Call, place: str, decision: Decision | None, seconds: float) -> None:
    """Nobody is told unless somebody asked for it."""
    reports = call.current.reports
    if reports is not None and decision is not None:
        reports.note(call.function.name, place, decision, seconds)


def returned(call: Call, result: Any) -> None:
    """What an answer would bring back from a node, until one has said so itself."""
    current, name = call.current, call.function.name
    with current.lock:
        if current.engine.knows_result(name):
            return
    found = result_bytes(result)
    if found is not None:
        with current.lock:
            current.engine.observe_result(name, call.size, found)


def answered(attempt: Attempt, answer: Answer, is_first: bool) -> None:
    """A node did a call; in a race perhaps not as the first."""
    call, race = attempt.call, attempt.race
    current, function, node, reply = call.current, call.function, attempt.node, answer.reply
    is_disturbed = current.is_disturbed or (race is not None and race.has_begun_here)
    now = time.monotonic()
    took = answer.encoded + reply.whole_at - reply.began_at + answer.decoded
    if is_first:
        _report(call, node.name, attempt.decision, took)
    with current.lock:
        stats = current.stats_of(function.name)
        if is_first:
            stats.ran(node.name, took)
        stats.bytes_up += answer.bytes_up
        stats.bytes_down += reply.body.nbytes
        if now - function.learnt_at < LEARN_SECONDS and attempt.decision is None:
            return
        function.learnt_at = now
        round_trip = current.engine.place(node.name).round_trip.guess(now).middle
        stages = stages_of(reply, (answer.encoded, answer.decoded), answer.bytes_up, round_trip, call.bytes_up)
        known = attempt.decision if is_first else None
        current.engine.observe_remote(
            function.name, node.name, call.size, stages, now, decision=known, is_disturbed=is_disturbed
        )


def failed(call: Call, error: Exception, is_in_vain: bool) -> None:
    """A node did not do a call; perhaps none ever will."""
    if is_in_vain:
        call.function.vain.begin(time.monotonic())
    call.current.stats_of(call.function.name).failed(error)


def took_longer(attempt: Attempt, seconds: float, now: float) -> None:
    """A node had so much time for a call and did not do it."""
    call = attempt.call
    with call.current.lock:
        call.current.engine.observe_remote_longer(call.function.name, call.size, attempt.prediction, seconds, now)


def helped(current: Runtime, seconds: float) -> None:
    """What it took beside the call to run it in another thread."""
    # Calls that are shorter than what a helper is taken to cost get none: nothing would correct one that is too high.
    seconds = min(seconds, HELPER_SECONDS_MAX)
    with current.lock:
        current.engine.helper_seconds += HELPER_GAIN * (seconds - current.engine.helper_seconds)


def held(call: Call, is_held: bool) -> None:
    """Whether the call kept the interpreter from the thread that waited for it."""
    with call.current.lock:
        call.current.engine.observe_held(call.function.name, is_held)


def raced(attempt: Attempt, race: Race) -> None:
    """A call may have run at two places, and is over."""
    call, name, now = attempt.call, attempt.call.function.name, time.monotonic()
    current, engine = call.current, call.current.engine
    seconds_there, computed = race.there()
    here_won = race.outcome is not None
    if here_won:
        _report(call, LOCAL, attempt.decision, race.here_ended - race.here_began)
    with current.lock:
        stats = current.stats_of(name)
        if race.is_doubled and attempt.decision is not None:
            extra = computed if here_won else now - race.here_began
            engine.observe_raced(name, attempt.decision, LOCAL if here_won else attempt.node.name, seconds_there, extra)
            stats.doubled += 1
            stats.doubled_here += here_won
        if not here_won:
            engine.observe_local_longer(name, call.size, now - race.here_began)
            return
        took = race.here_ended - race.here_began
        engine.observe_local(name, call.size, took, attempt.decision, current.is_disturbed)
        stats.ran(LOCAL, took)
        if race.sending is not None and race.sending[0] >= RATE_BYTES_MIN:
            engine.place(attempt.node.name).observe_transfer(race.sending, None, now)
        elif race.was_asked:
            took_longer(attempt, alone(seconds_there, took, engine.turns_seconds), now)


def stages_of(reply: Reply, coding: tuple[float, float], bytes_up: int, round_trip: float, estimated: int = 0) -> Stages:
    """Where the time of a call went, from the client's clock and the node's `Server-Timing`.

    What is neither the node's nor the reply's transfer is round trip and upload; which, the expected round trip says.
    """
    timing = reply.timing
    run = timing.get("run", 0.0)
    there = sum(timing.get(name, 0.0) for name in ("queue", "start", "decode", "run", "encode"))
    network = max(reply.head_at - reply.began_at - there, 1e-5)
    is_large = bytes_up >= RATE_BYTES_MIN
    up = max(network - round_trip, network / 10) if is_large else 0.0
    return Stages(
        encode=coding[0],
        up=up,
        round_trip=None if is_large else network,
        queue=max(there - run, 0.0),
        run=run,
        down=reply.whole_at - reply.head_at,
        decode=coding[1],
        bytes_up=bytes_up,
        bytes_down=reply.body.nbytes,
        bytes_estimated=estimated,
        round_trip_expected=network - up if is_large else 0.0,
    )

"""Asks the engine where a call should run."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from ..decide import Decision, Question

if TYPE_CHECKING:
    from ..places.node import Node
    from .call import Call

#: Seconds that putting a function on a node is taken to last, before it has been done.
PREPARE_SECONDS: Final = 0.5


def decide(call: Call, nodes: list[Node], now: float) -> Decision:
    """Where the call should run, of here and these nodes."""
    function, options, current = call.function, call.function.options, call.current
    # What has taken longer than that may take as long again.
    waits = {node.name: max(PREPARE_SECONDS, function.awaited(node, now)) for node in nodes if not function.is_ready(node)}
    if function.stays is None and not function.vain.is_resting(now) and call.bytes_up <= options.limits.body_bytes:
        open_ = [node.name for node in nodes if node not in function.refuses and not function.is_paused(node, now)]
    else:
        open_ = []
    with current.lock:
        return current.engine.decide(
            Question(
                function.name,
                call.size,
                call.bytes_up,
                open_,
                now,
                deadline=options.deadline,
                may_run_here=options.local or not open_,
                waits=waits,
                may_race=function.may_race and not _is_half(),
                is_disturbed=current.is_disturbed,
            )
        )


def soonest_first(call: Call, nodes: list[Node], now: float) -> list[Node]:
    """The nodes by what the call is expected to take there; those that failed lately last."""
    if len(nodes) == 1:
        return nodes
    with call.current.lock:
        question = Question(call.function.name, call.size, call.bytes_up, [node.name for node in nodes], now)
        seconds = {one.place: one.seconds for one in call.current.engine.predict(question)}
    return sorted(nodes, key=lambda node: (node.is_away(now), seconds.get(node.name, 0.0)))


def _is_half() -> bool:
    """Whether this runs in a call that runs elsewhere too: then it is not raced once more."""
    race = sys.modules.get(f"{__package__}.race")
    return race is not None and race.is_half.get()

"""The client in a replay: one slow processor, which a call's two halves share, and what an earlier one has left running.

    here    ──────── compute ────────▶            at half the speed while the other half writes, sends or reads
    there        encode ─ up ─ run ─ down ─ decode ▶       slower by as much, and by its waiting for turns

The half whose result is used ends the call. A half here that loses ends at once where the interpreter can stop it; one that
is inside a long library call runs out and is in the way of the calls after it, which is counted as theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from .model import LOCAL

if TYPE_CHECKING:
    from .replay import Point, Record

#: What a record calls its one node.
NODE: Final = "node"


@dataclass(frozen=True)
class Ran:
    """How one call went."""

    seconds: float
    #: The place whose result was used.
    place: str
    is_doubled: bool = False
    #: How long each half had run when the call was over; none where it did not begin.
    here: float | None = None
    there: float | None = None
    #: Processor time of the client for the half that lost.
    extra: float = 0.0
    #: Whether the node ran what was not used.
    is_node_extra: bool = False
    #: Whether the half here ended when it was told to.
    is_stopped: bool = False
    #: Whether what an earlier call has left running was in the way.
    is_disturbed: bool = False


class Client:
    """Runs the calls of one record, one after the other."""

    def __init__(self, record: Record) -> None:
        self._record = record
        #: Seconds of computing that an earlier call has left.
        self._left = 0.0

    @property
    def is_disturbed(self) -> bool:
        """Whether something that an earlier call has left is still running."""
        return self._left > 0.0

    def run(self, point: Point, place: str, after: float | None) -> Ran:
        """`place` runs the call, and `after` so many seconds the other one as well."""
        is_disturbed = self.is_disturbed
        ran = self._run(point, place, after)
        return replace(ran, is_disturbed=True) if is_disturbed else ran

    def _run(self, point: Point, place: str, after: float | None) -> Ran:
        if after is None:
            return self._here(point) if place == LOCAL else self._there(point)
        record, work = self._record, point.client_seconds
        begins_here, begins_there = (record.helper, after) if place == LOCAL else (after + record.helper, 0.0)
        # Two that compute share the processor by halves; so does what an earlier call has left.
        here = begins_here + point.local + min(self._left, point.local)
        there = begins_there + point.remote + min(self._left, work)
        if here <= begins_there:
            self._left -= min(self._left, point.local)
            return Ran(here, LOCAL, here=here - begins_here)
        if there <= begins_here:
            return self._there(point)
        if point.function in record.holds:
            # From here on it has the interpreter to itself.
            self._left -= min(self._left, point.local)
            spent = 0.0 if begins_there > begins_here else work
            return Ran(here, LOCAL, spent > 0, here - begins_here, here - begins_there, spent, spent > 0)
        stages = point.stages
        wrote = begins_there + stages.encode
        if begins_here < wrote:
            there += stages.encode
        turns = record.turns if point.function in record.stops else 0.0
        if here > wrote:
            there += turns
        if here > there:
            there += stages.decode
        # What the other half has taken from the processor by the time that this one is done.
        spent = work * min(1.0, (here - begins_there) / max(there - begins_there, 1e-9))
        here += spent
        if here <= there:
            self._left -= min(self._left, point.local)
            return Ran(
                here, LOCAL, True, here - begins_here, here - begins_there, spent, is_node_extra=here > wrote + stages.up
            )
        computed = max(there - begins_here - work, 0.0)
        rest = max(point.local - computed, 0.0)
        self.pause(max(there - computed - work, 0.0))
        is_stopped = point.function in record.stops
        if not is_stopped:
            self._left += rest
            computed += rest
        return Ran(there, NODE, True, there - begins_here, there - begins_there, computed, is_stopped=is_stopped)

    def pause(self, seconds: float) -> None:
        """Nobody calls for so long."""
        self._left = max(self._left - seconds, 0.0)

    def _here(self, point: Point) -> Ran:
        shared = min(self._left, point.local)
        self._left -= shared
        return Ran(point.local + shared, LOCAL, here=point.local + shared)

    def _there(self, point: Point) -> Ran:
        shared = min(self._left, point.client_seconds)
        seconds = point.remote + shared
        self.pause(seconds - point.client_seconds)
        return Ran(seconds, NODE, there=seconds)

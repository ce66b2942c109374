"""The table that `f.explain(x)` shows: what a call is expected to take at each place, and why one of them is chosen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .decide import Choice, Decision, Prediction

if TYPE_CHECKING:
    from .places.node import Node

_STAGES = ("encode", "up", "round trip", "queue", "run", "down", "decode")


@dataclass(frozen=True)
class Explanation:
    """A decision, and what it rests on. Printed, it is a table."""

    function: str
    decision: Decision
    size: float
    bytes_up: int
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.function}: {self.decision.place}, {self.decision.choice.value}"]
        lines.append(f"  work grows with {self.size:,.0f}, arguments are {_bytes(self.bytes_up)}")
        if self.decision.predictions:
            lines += _table([_row(prediction, self.decision.place) for prediction in self.decision.predictions])
        if self.decision.rival is not None:
            lines.append(f"  {self._beside()}")
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)

    def _beside(self) -> str:
        """Where it would run as well, when, and why."""
        decision = self.decision
        after = f"after {_seconds(decision.rival_after)}"
        if decision.choice is not Choice.RACED:
            return f"{decision.rival} would run it as well, if it is not done {after}: by then it is late"
        if decision.doubt <= 0:
            return f"raced: {decision.rival} runs it as well, if it is not done {after}, for neither place is known well"
        return f"raced: {decision.rival} runs it as well {after}; knowing the better place would save {decision.doubt:.0%}"

    __repr__ = __str__


def unused(node: Node, on: frozenset[str] | None) -> str:
    """Why a node is no place for a call now."""
    if not node.is_among(on):
        return f"{node.name} is none of `on`"
    if node.known is None and not node.problem:
        return f"{node.name} has not answered yet"
    return f"{node.name} {node.problem or 'does not answer'}"


def _row(prediction: Prediction, chosen: str) -> list[str]:
    terms = {term.name: term for term in prediction.terms}
    cells = [("▸ " if prediction.place == chosen else "  ") + prediction.place]
    cells += [_seconds(terms[name].seconds) if name in terms else "" for name in _STAGES]
    cells.append(_seconds(prediction.wait) if prediction.wait else "")
    cells.append(f"{_seconds(prediction.seconds)} ± {_seconds(prediction.spread)}")
    return cells


def _table(rows: list[list[str]]) -> Iterable[str]:
    heads = ["  place", *_STAGES, "prepare", "expected"]
    used = [at for at in range(len(heads)) if any(row[at] for row in rows)]
    widths = [max(len(heads[at]), *(len(row[at]) for row in rows)) for at in used]
    for row in [heads, *rows]:
        cells = [row[at].ljust(width) if at == 0 else row[at].rjust(width) for at, width in zip(used, widths, strict=True)]
        yield "  ".join(cells).rstrip()


def _seconds(seconds: float) -> str:
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds / 1e-6:.3g} µs"


def _bytes(count: float) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:.0f} bytes"

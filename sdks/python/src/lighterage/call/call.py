"""One call of a function, and what it is taken to weigh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..places.runtime import Runtime
    from ..places.wire import Cancel
    from .function import Function


@dataclass(slots=True)
class Call:
    """What is carried from where a call begins to where it is learnt from."""

    function: Function
    #: What was current when it began, whatever is by the time that it ends.
    current: Runtime
    args: Any
    kwargs: Any
    #: What its work grows with, and the bytes that its arguments are taken to take on the wire.
    size: float
    bytes_up: int
    cancel: Cancel | None = None

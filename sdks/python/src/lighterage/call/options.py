"""How a function is offloaded: what `@offload(…)` takes by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..limits import Limits
from ..travel import codecs

if TYPE_CHECKING:
    from ..places.node import Node


@dataclass(frozen=True)
class Options:
    """How a function is offloaded. `@offload(…)` takes them by name."""

    #: Same arguments, same result, and nothing else happens: a call may run here and on a node at once, and here in
    #: another thread, where it is stopped in the middle when the node was sooner.
    pure: bool = False
    #: Whether a call of a pure function may run at two places at once.
    race: bool = True
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

    @property
    def of_code(self) -> tuple[object, ...]:
        """Those by which nodes tell one code from another, take it or refuse it, and can do its calls or cannot."""
        return self.limits, self.lock, self.any_version, self.keep, self.codec, self.component


def names(on: str | Node | Iterable[str | Node]) -> frozenset[str]:
    """The nodes that are meant by one, by names or by addresses."""
    if isinstance(on, str):
        return frozenset((on,))
    if not isinstance(on, Iterable):
        return frozenset((on.name,))
    return frozenset(one if isinstance(one, str) else one.name for one in on)


def checked(options: dict[str, Any]) -> dict[str, Any]:
    """Options as they may be written: `on` as one node or several, each by its name, its address or itself."""
    options = dict(options)
    if options.get("on") is not None:
        options["on"] = names(options["on"])
    return options

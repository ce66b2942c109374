"""A function that is offloaded: its code as nodes get it, which of them take it, and how its arrays are packed for each.

Which node a call goes to, and what to do when it fails, is not decided here.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakSet

from ..errors import DoesNotTravel, LighterageError, NodeRefused, VersionsDiffer
from ..places import runtime
from ..timers import background
from ..travel import calls, codecs
from ..travel.kept import Keeper, Known
from ..travel.pack import ZLIB, ZSTD, Packer, methods
from .call import Call
from .measure import sizes
from .vain import Vain

if TYPE_CHECKING:
    from ..code.code import Code, Component
    from ..places.node import Node
    from ..places.runtime import Runtime
    from ..places.wire import Cancel
    from .options import Options

#: The attribute by which what decorates a function says which one it is.
BOUND: Final = "__lighterage_bound__"
#: Seconds that transfers may add to the limit on a call's time, and bytes a second that are expected at the least.
SLACK_SECONDS: Final = 10.0
SLOWEST_BYTES_PER_SECOND: Final = 20_000.0
#: Bytes a second above which no packing pays.
FAST_NETWORK: Final = 400e6
#: Seconds for which it is settled whether packing may pay.
PACKING_SECONDS: Final = 0.1
#: Seconds until a node that could not take the function is asked again, if it may: after the first time, and at most.
AGAIN_SECONDS: Final = 5.0
AGAIN_SECONDS_MAX: Final = 300.0
#: A line of a lock file that installs zstandard, whatever the machine: after a `;` there would be a condition.
_LOCKS_ZSTD: Final = re.compile(r"^zstandard\s*==[^;\n]*$", re.IGNORECASE | re.MULTILINE)


class OffloadWarning(UserWarning):
    """A function cannot run on nodes and runs here."""


class Bound(NamedTuple):
    """A function, and what its arguments begin with."""

    function: Function
    first: tuple[Any, ...]


class Standing:
    """What is known of a function's code, here and on nodes. Safe for threads."""

    def __init__(self) -> None:
        #: Why the function can run here only.
        self.stays: DoesNotTravel | None = None
        #: Nodes that do not take it.
        self.refuses: WeakSet[Node] = WeakSet()
        #: Its calls that ran on nodes and brought nothing.
        self.vain = Vain()
        self.code: Code | Component | None = None
        #: Nodes that it is being put on, or that are not asked to take it for a while.
        self.preparing: set[str] = set()
        #: By node: for how long it was left alone last, and until when.
        self.pauses: dict[str, float] = {}
        self.paused: dict[str, float] = {}
        #: By node: the arrays that its units are taken to have.
        self.known: dict[str, Known] = {}
        self.lock = threading.Lock()
        _all.add(self)

    def renew(self) -> None:
        """Begins anew in a process that was forked: with what is known, without what goes on."""
        self.lock = threading.Lock()
        self.preparing = set()


class Function:
    """Safe for threads."""

    def __init__(self, plain: Callable[..., Any], options: Options) -> None:
        self.plain = plain
        self.name = f"{plain.__module__}:{plain.__qualname__}"
        self.options = options
        self.is_async = inspect.iscoroutinefunction(plain)
        self.standing = Standing()
        #: When a call of it was last learnt from.
        self.learnt_at = 0.0
        #: By node: until when the answer holds, and how arrays are packed.
        self._packings: dict[str, tuple[float, calls.Packing | None]] = {}

    def share(self, other: Function) -> None:
        """From now on both know the same of their code, if it is the same. To be called before this one is used."""
        if self.options.of_code == other.options.of_code:
            self.standing = other.standing

    @property
    def stays(self) -> DoesNotTravel | None:
        """Why it can run here only."""
        return self.standing.stays

    @property
    def refuses(self) -> WeakSet[Node]:
        """Nodes that do not take it."""
        return self.standing.refuses

    @property
    def vain(self) -> Vain:
        """Its calls that ran on nodes and brought nothing."""
        return self.standing.vain

    # Calls of it

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any], cancel: Cancel | None = None) -> Call:
        """A call with these arguments."""
        return Call(self, runtime.current, args, kwargs, *self.sizes(args, kwargs), cancel)

    def sizes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[float, int]:
        """What the work of a call grows with, and the bytes of its arguments."""
        size, bytes_up = sizes(args, kwargs)
        return (size if self.options.size is None else max(float(self.options.size(*args, **kwargs)), 1.0)), bytes_up

    def places(self, nodes: list[Node]) -> list[Node]:
        """Where calls may go: to nodes, or for a component whose units are boards to these."""
        if self.options.component is None:
            return nodes
        name, now = self.options.component, time.monotonic()
        return [place for node in nodes for place in node.places(name) if not place.is_away(now)]

    @property
    def may_race(self) -> bool:
        """Whether a call may run at two places at once."""
        options = self.options
        return options.pure and options.race and options.fallback and not self.is_async

    def time_limit(self, bytes_up: int) -> float:
        return self.options.limits.seconds + SLACK_SECONDS + bytes_up / SLOWEST_BYTES_PER_SECOND

    # Its code

    def is_ready(self, node: Node) -> bool:
        """Whether the function is on the node."""
        return self.standing.code is not None and node.is_ready(self.standing.code.name)

    def awaited(self, node: Node, now: float) -> float:
        """Seconds for which the function has been on its way to the node; 0 where it is not."""
        return 0.0 if self.standing.code is None else node.awaited(self.standing.code.name, now)

    def made(self) -> Code | Component:
        """The function's code as it is now, or the component in its place.

        Raises DoesNotTravel.
        """
        from ..code.code import Component

        made = self.standing.code
        if self.options.component is not None and made is None:
            made = self.standing.code = Component(self.options.component, self.options.limits)
        if made is not None and (isinstance(made, Component) or made.bundle.is_current()):
            return made
        with self.standing.lock:
            if self.stays is not None:
                raise self.stays
            from ..code.make import make

            try:
                options = self.options
                made = make(self.plain, options.limits, options.lock, options.any_version, options.keep)
                self.standing.code = made
            except DoesNotTravel as error:
                self.standing.stays = error
                if options.fallback:
                    _warn(f"{self.name} runs here only: {error}")
                raise
        return made

    def prepare_later(self, node: Node) -> None:
        """Puts the function on a node in the background."""
        made = self.standing.code
        if self.stays is not None or node in self.refuses or (made is not None and node.is_ready(made.name)):
            return
        with self.standing.lock:
            if node.name in self.standing.preparing:
                return
            self.standing.preparing.add(node.name)

        background(functools.partial(self._prepare, node))

    def _prepare(self, node: Node) -> None:
        pause = 0.0
        try:
            runtime.current.prepare(node, self.made())
            self.standing.pauses.pop(node.name, None)
        except VersionsDiffer as error:
            self.stay(node, error)
        except NodeRefused as error:
            if self.refusal(node) is not None:
                self.refuses.add(node)
            else:
                pause = self.pause_after(node, error)
        except ConnectionError:
            runtime.current.failed(node)
        except LighterageError:
            return
        finally:
            if pause:
                runtime.current.timers.after(pause, functools.partial(self.standing.preparing.discard, node.name))
            else:
                self.standing.preparing.discard(node.name)

    def pause_after(self, node: Node, error: NodeRefused) -> float:
        """Leaves a node alone that could not take the function but may later, and says for how many seconds."""
        pause = min(max(2 * self.standing.pauses.get(node.name, 0.0), AGAIN_SECONDS), AGAIN_SECONDS_MAX)
        self.standing.pauses[node.name] = pause
        pause = max(pause, error.retry_after)
        self.standing.paused[node.name] = time.monotonic() + pause
        return pause

    def is_paused(self, node: Node, now: float) -> bool:
        """Whether the node is left alone, as it could not take the function lately."""
        return now < self.standing.paused.get(node.name, 0.0) and not self.is_ready(node)

    def stay(self, node: Node, error: LighterageError) -> None:
        if node not in self.refuses:
            self.refuses.add(node)
            _warn(f"{self.name} does not run on {node.name}: {error}")

    def refusal(self, node: Node) -> LighterageError | None:
        return None if self.standing.code is None else node.refusal(self.standing.code.name)

    # Its arrays

    def keeper(self, current: Runtime, node: Node) -> Keeper | None:
        if not self.options.keep or self.options.codec != codecs.FRAME:
            return None
        known = self.standing.known.get(node.name)
        if known is None:
            known = self.standing.known[node.name] = Known()
        packing = self.packing(current, node)
        return Keeper(known, packing.up if packing is not None else None)

    def packing(self, current: Runtime, node: Node) -> calls.Packing | None:
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
        return calls.Packing(Packer(up, self._unpacks(node)), Packer(down, methods()))

    def _unpacks(self, node: Node) -> tuple[str, ...]:
        """The ways of packing arrays that the function's units know: by what the node has, or by what the lock file names."""
        if self.options.lock is None:
            return node.unpacks
        return (ZLIB, ZSTD) if _LOCKS_ZSTD.search(self.options.lock) else (ZLIB,)

    def forget_kept(self, node: Node) -> None:
        """A unit of the node does not have what it was taken to have."""
        self.standing.known[node.name].forget()


#: All there are: a process that was forked goes through them.
_all: Final[WeakSet[Standing]] = WeakSet()


def _child() -> None:
    """What threads of the parent held or were doing, nobody gives back or ends in a child."""
    for standing in _all:
        standing.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_child)


def _warn(text: str) -> None:
    """Warns of the line that called into this package."""
    level, caller = 2, sys._getframe(1)
    while caller.f_back is not None and caller.f_globals.get("__name__", "").startswith("lighterage."):
        level, caller = level + 1, caller.f_back
    warnings.warn(text, OffloadWarning, stacklevel=level)

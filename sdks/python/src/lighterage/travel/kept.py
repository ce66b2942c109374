"""Operands that stay in a unit: an array that was sent before is named by its hash instead of being sent again.

    client   Tagged("keep", [sha256, array])      the first time
             Tagged("kept", sha256)               from then on
    unit     has it: a copy of it. Has not: raises `Missing` before anything is run, and the client sends it whole

Only a function with `keep=True` does so, for its units then serve many calls one after the other: what one call leaves in
memory, the next one sees. A unit checks the hash of what it keeps, so no caller can leave a wrong array for another.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .. import here
from ..errors import DoesNotTravel
from .frame import Array, Tagged
from .names import name_of, remembered_name_of

KEEP: Final = "keep"
KEPT: Final = "kept"
#: Arrays smaller than this are sent each time.
BYTES_MIN: Final = 64 << 10
#: Bytes that a unit keeps; what was not used for longest goes.
BYTES_MAX: Final = 256 << 20
#: Hashes that a client remembers of one function on one node.
NAMES_MAX: Final = 256


class Missing(Exception):
    """A unit does not have an array that it was told by its hash."""


class Keeper:
    """The client's side: what of a call's arrays is sent, and what is only named."""

    def __init__(self, known: Known, pack: Callable[[Array], Any] | None) -> None:
        self._known = known
        self._pack = pack
        #: Whether all is sent, whatever units are taken to have.
        self.sends_all = False

    def __call__(self, array: Array) -> Any:
        if array.data.nbytes < BYTES_MIN:
            return array if self._pack is None else self._pack(array)
        name = remembered_name_of(array)
        if self._known.has(name) and not self.sends_all:
            return Tagged(KEPT, name)
        return Tagged(KEEP, [name, array if self._pack is None else self._pack(array)])


class Known:
    """What a client takes a function's units on one node to have. Safe for threads."""

    def __init__(self) -> None:
        self._names: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()

    def has(self, name: str) -> bool:
        """Whether it was sent before; from now on it was."""
        with self._lock:
            known = name in self._names
            self._names[name] = None
            self._names.move_to_end(name)
            while len(self._names) > NAMES_MAX:
                self._names.popitem(last=False)
            return known

    def forget(self) -> None:
        """Nothing is taken to be there."""
        with self._lock:
            self._names.clear()


_store: OrderedDict[str, np.ndarray[Any, Any]] = OrderedDict()


def keep(name: str, array: np.ndarray[Any, Any], lowered: Any) -> np.ndarray[Any, Any]:
    """In a unit: keeps a copy of an array, and gives the array back for the function to work with. `lowered` is the array as
    it is sent.

    A copy, for another argument of the call may lie in the same bytes.

    Raises DoesNotTravel where it is not what its hash says.
    """
    if not here.is_unit():
        raise DoesNotTravel("the other side sent an array to be kept, which only units do")
    if not isinstance(lowered, Array) or name_of(lowered) != name:
        raise DoesNotTravel("the other side sent an array that is not what its hash says")
    _store[name] = array.copy(order="K")
    _store.move_to_end(name)
    while len(_store) > 1 and sum(one.nbytes for one in _store.values()) > BYTES_MAX:
        _store.popitem(last=False)
    return array


def find(name: str) -> np.ndarray[Any, Any]:
    """In a unit: a copy of an array that was kept.

    Raises Missing.
    """
    array = _store.get(name) if here.is_unit() else None
    if array is None:
        raise Missing(name)
    _store.move_to_end(name)
    return array.copy(order="K")

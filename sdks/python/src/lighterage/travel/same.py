"""What is one object here is one object there: found before a call or a reply is written.

    f(x, x)            the list is written once, as `shared`; its second place says `again`
    f(a[1:], a[:-1])   both are `view`s of one block, which is written once

A function that changes one of its arguments would else answer differently on a node, without a word. Only what can be
changed is looked at: whether two equal tuples are one, no function should ask.

The other side keeps what is `shared` by its number (`again`). Nothing that is hashed by what it holds is shared: values within
values could else take ages to hash.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ..errors import DoesNotTravel, LighterageError
from .again import AGAIN, SHARED, VIEW, is_hashed
from .arrays import describe
from .classes import check_plain
from .frame import FrameError, Tagged, Writer

#: Values that a call may hold, as its reader counts them.
VALUES_MAX: Final = 8_000_000
#: How often values that cannot be changed may be found again in others: each time all they hold is written again.
AGAIN_MAX: Final = 100_000
#: Steps that numpy may take to find whether two arrays have an element in common.
OVERLAP_STEPS: Final = 10_000
#: A block that several views share has at most so many times their bytes, and so many more: between them nothing is sent.
BLOCK_TIMES: Final = 2
BLOCK_BYTES: Final = 1 << 16

#: What holds nothing else and cannot be changed.
_PLAIN: Final = frozenset({type(None), bool, int, float, complex, str, bytes, type(Ellipsis), range})
_CHANGED: Final = frozenset({set, bytearray})
_ITEMS: Final = frozenset({tuple, set, frozenset})


@dataclass
class Sameness:
    """The objects of one call that occur more than once, by their identity."""

    numbers: dict[int, int] = field(default_factory=dict)
    #: Arrays that overlap others: what stands for each.
    views: dict[int, Tagged] = field(default_factory=dict)
    #: Keeps what was looked at, so that no identity is used twice.
    alive: list[Any] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.numbers or self.views)

    @property
    def count(self) -> int:
        """Objects, and arrays that overlap."""
        return len(self.numbers) + len(self.views)


def find(roots: Iterable[Any], first: int = 0) -> Sameness:
    """What occurs more than once in these values, numbered from `first`.

    Raises DoesNotTravel where it cannot be said which memory two of them have in common, or there is no end of them.
    """
    roots = list(roots)
    if _PLAIN.issuperset(map(type, roots)):
        # Most small calls hold nothing else.
        return Sameness()
    try:
        return _find(roots, first)
    except (LighterageError, MemoryError):
        raise
    except Exception as error:  # It may be changed by another thread meanwhile, or run code of its own.
        raise DoesNotTravel(f"a value cannot be looked at: {type(error).__name__}: {error}") from error


def _find(roots: Iterable[Any], first: int) -> Sameness:
    found = Sameness()
    seen: dict[int, Any] = {}
    arrays: list[Any] = []
    open_: list[Any] = list(roots)
    left, again, expanded, is_plain = VALUES_MAX, 0, set(), _PLAIN.issuperset
    while open_:
        value = open_.pop()
        kind = type(value)
        if kind in _PLAIN:
            continue
        if kind is dict or kind is list:
            # Most of all there is, so without detours.
            known = id(value)
            if known in seen:
                found.numbers.setdefault(known, first + len(found.numbers))
                continue
            seen[known] = value
            items = value if kind is list else value.values()
            if not is_plain(map(type, items)):
                open_.extend(items)
            if kind is dict and not is_plain(map(type, value)):
                open_.extend(value)
            continue
        left -= 1
        if left < 0:
            raise DoesNotTravel(f"a value that holds more than {VALUES_MAX} others does not travel")
        is_array = kind in (np.ndarray, memoryview, bytearray)
        if is_array or kind in _CHANGED or _is_changed(value):
            if id(value) in seen:
                if kind is not memoryview:
                    found.numbers.setdefault(id(value), first + len(found.numbers))
                continue
            seen[id(value)] = value
            if is_array:
                arrays.append(value)
                continue
        if kind in _ITEMS or isinstance(value, tuple):
            if _PLAIN.issuperset(map(type, value)):
                continue
            if kind not in _CHANGED:
                seen[id(value)] = value
                again += id(value) in expanded
                expanded.add(id(value))
                if again > AGAIN_MAX:
                    raise DoesNotTravel("values that hold each other so often do not travel")
            open_.extend(value)
        elif dataclasses.is_dataclass(kind):
            open_.extend(_fields(value))
    if len(arrays) > 1:
        _overlaps(arrays, found, first)
    found.alive.extend(seen.values())
    return found


def _is_changed(value: Any) -> bool:
    """Whether it is an object of a dataclass whose fields can be set."""
    kind = type(value)
    return dataclasses.is_dataclass(kind) and not kind.__dataclass_params__.frozen  # type: ignore[attr-defined]


def _fields(value: Any) -> Iterator[Any]:
    try:
        check_plain(type(value))
    except DoesNotTravel:
        # It is refused when it is written.
        return
    for one in dataclasses.fields(value):
        # One that is not set is refused when it is written.
        if hasattr(value, one.name):
            yield getattr(value, one.name)


def _bounds(value: Any) -> tuple[int, int]:
    """Where the memory of it begins and ends."""
    array = np.frombuffer(value, np.uint8) if type(value) is not np.ndarray else value
    start = array.__array_interface__["data"][0]
    if not array.size:
        return start, start
    steps = [(count - 1) * stride for count, stride in zip(array.shape, array.strides, strict=True)]
    return start + sum(min(step, 0) for step in steps), start + sum(max(step, 0) for step in steps) + array.itemsize


def _overlaps(arrays: list[Any], found: Sameness, first: int) -> None:
    """Finds the arrays that have memory in common, and what stands for each of them."""
    places = []
    for array in arrays:
        try:
            places.append((*_bounds(array), array))
        except (ValueError, TypeError, BufferError):
            # A memory that is not in one piece, or none at all: it is a copy when it arrives.
            continue
    places.sort(key=lambda place: place[:2])
    group: list[tuple[int, int, Any]] = []
    end = 0
    for place in places:
        if group and place[0] >= end:
            _share(group, found, first)
            group = []
        end = max(end, place[1]) if group else place[1]
        group.append(place)
    _share(group, found, first)


def _share(group: list[tuple[int, int, Any]], found: Sameness, first: int) -> None:
    """Arrays whose bounds touch: those that have an element in common become views of one block."""
    if len(group) < 2:
        return
    together = [place for place in group if any(_matter(place[2], other[2]) for other in group if other is not place)]
    if not together:
        return
    if any(type(array) is not np.ndarray or array.dtype.hasobject for _, _, array in together):
        raise DoesNotTravel("bytes that are passed twice, as themselves and by a view, do not travel: pass a copy of one")
    start, end = min(place[0] for place in together), max(place[1] for place in together)
    if end - start > BLOCK_TIMES * sum(array.nbytes for _, _, array in together) + BLOCK_BYTES:
        raise DoesNotTravel("arrays that overlap and lie far apart do not travel: pass copies of them")
    block = np.zeros(end - start, np.uint8)
    found.alive.append(block)
    found.numbers[id(block)] = first + len(found.numbers)
    for _, _, array in together:
        offset = array.__array_interface__["data"][0] - start
        np.ndarray(array.shape, array.dtype, block.data, offset, array.strides)[...] = array
        layout: list[Any] = [describe(array.dtype), list(array.shape), list(array.strides), offset]
        found.views[id(array)] = Tagged(VIEW, [block, *layout])


def _matter(one: Any, other: Any) -> bool:
    """Whether a change of one may be seen in the other. What both arrive as bytes cannot be changed."""
    if type(one) is memoryview and type(other) is memoryview:
        return False
    left, right = (np.frombuffer(value, np.uint8) if type(value) is not np.ndarray else value for value in (one, other))
    try:
        return np.shares_memory(left, right, max_work=OVERLAP_STEPS)  # type: ignore[arg-type]
    except Exception:  # It would take too long to tell.
        return True


@dataclass
class Scope:
    """Arguments of one call among several, within which sameness is told."""

    args: list[Any]
    same: Sameness


class SameWriter(Writer):
    """A writer that writes what occurs twice once."""

    def __init__(self, lower: Any, depth_max: int, same: Sameness) -> None:
        super().__init__(lower, depth_max)
        self._same = same
        #: Numbers that are being written, and those that have been.
        self._open: set[int] = set()
        self._done: set[int] = set()

    def value(self, value: Any, depth: int = 1) -> None:
        if type(value) is Scope:
            outer, self._same = self._same, value.same
            self.value(value.args, depth)
            self._same = outer
            return
        number = self._same.numbers.get(id(value))
        if number is None:
            super().value(self._same.views.get(id(value), value), depth)
        elif number in self._open:
            raise FrameError("too-deep", "a value that holds itself")
        elif number in self._done:
            super().value(Tagged(AGAIN, number), depth)
        else:
            if is_hashed(type(value)):
                name = type(value).__qualname__
                raise DoesNotTravel(f"{name}: an object that is passed twice and is hashed by what it holds does not travel")
            self._open.add(number)
            self._check_depth(depth + 1)
            self.tag(SHARED)
            self.items(2)
            super().value(number, depth + 2)
            super().value(self._same.views.get(id(value), value), depth + 2)
            self._open.discard(number)
            self._done.add(number)

"""How large a call is: the bytes its arguments take on the wire, and the number that its work may grow with.

Both are guesses that must take microseconds, so long lists are sampled. What a function's work really grows with, its
author may say (`size=`); without that it is the bytes where there are many, else the largest number among the arguments.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import numpy as np

#: Arguments below this are few enough that a number among them says more about the work.
BULK_BYTES: Final = 512
#: Items of a list that are looked at; the rest is taken to be like them.
SAMPLED: Final = 8
#: Bytes of a call beside its arguments.
EMPTY_BYTES: Final = 128
#: A number beyond this says no more about the work.
NUMBER_MAX: Final = 1e18
_DEPTH_MAX: Final = 8

_NUMBERS: Final = frozenset((int, float, bool))


def sizes(args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> tuple[float, int]:
    """What the work may grow with, and the bytes on the wire."""
    total = EMPTY_BYTES
    number = 0.0
    for value in (*args, *kwargs.values()) if kwargs else args:
        kind = type(value)
        if kind is np.ndarray:
            total += value.nbytes
        elif kind in _NUMBERS:
            if value > number:
                number = value
            elif -value > number:
                number = -value
            total += 9
        elif kind is bytes or kind is bytearray or kind is str:
            total += len(value)
        elif value is not None:
            total += _bytes(value, 0)
    return (total if total > BULK_BYTES else max(float(min(number, NUMBER_MAX)), 1.0)), total


def result_bytes(value: Any) -> int | None:
    """The bytes that a result would take on the wire. None where it is of a kind that will not say."""
    try:
        return sizes((value,))[1]
    except Exception:
        # Results that stay here need not travel, and may be of any kind.
        return None


def _bytes(value: Any, depth: int) -> int:
    kind = type(value)
    if kind is np.ndarray:
        return int(value.nbytes) + 64
    if kind in _NUMBERS or value is None:
        return 9
    if kind is bytes or kind is bytearray or kind is str:
        return len(value) + 5
    if depth >= _DEPTH_MAX:
        return 64
    if isinstance(value, (list, tuple, set, frozenset)):
        return _many(value, depth)
    if isinstance(value, dict):
        return _many(value.keys(), depth) + _many(value.values(), depth)
    if dataclasses.is_dataclass(value):
        return 64 + sum(_bytes(getattr(value, field.name, None), depth + 1) for field in dataclasses.fields(value))
    found = getattr(value, "nbytes", None)
    return found if isinstance(found, int) else 64


def _many(values: Any, depth: int) -> int:
    count = len(values)
    if not count:
        return 5
    looked = seen = 0
    if isinstance(values, (list, tuple)) and count > SAMPLED:
        for at in range(0, count, count // SAMPLED):
            looked += 1
            seen += _bytes(values[at], depth + 1)
    else:
        for value in values:
            looked += 1
            seen += _bytes(value, depth + 1)
            if looked == SAMPLED:
                break
    return 5 + seen * count // looked

"""The names of arrays: hashes of all that makes an array what it is.

To hash an array takes as long as to send it to a node near by. Whoever names the same one call after call compares it with
a copy of what had the name instead, which takes a tenth of that. What was changed in between is found by comparing, and
hashed anew.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from .frame import Array

#: Bytes of copies that are kept for comparing; what was not used for longest goes. Larger arrays are hashed each time.
COPIES_BYTES_MAX: Final = 32 << 20
#: Bytes compared at once, so that what is compared stays near the processor and a difference ends it soon.
_BLOCK: Final = 256 << 10
#: Bytes at the beginning, in the middle and at the end by which a copy is found.
_SAMPLE: Final = 32


def name_of(array: Array) -> str:
    """Of all that makes the array what it is: its type, shape and order too."""
    head = hashlib.sha256(_head(array).encode()).hexdigest()[:16]
    return hashlib.sha256(array.data, usedforsecurity=True).hexdigest() + head


def remembered_name_of(array: Array) -> str:
    """The same, not hashed where this process has named an array of these very bytes lately. Safe for threads."""
    data = np.frombuffer(array.data, np.uint8)
    if data.nbytes > COPIES_BYTES_MAX:
        return name_of(array)
    middle = data.nbytes // 2
    samples = (data[:_SAMPLE], data[middle : middle + _SAMPLE], data[-_SAMPLE:])
    key = _head(array).encode() + b"".join(sample.tobytes() for sample in samples)
    with _lock:
        known = _copies.get(key)
        if known is not None:
            _copies.move_to_end(key)
    if known is not None and _is_same(known[0], data):
        return known[1]
    # The copy is what is hashed: another thread may write to the array meanwhile.
    copy = data.copy()
    name = name_of(replace(array, data=copy.data))
    with _lock:
        _copies[key] = (copy, name)
        _copies.move_to_end(key)
        while sum(one.nbytes for one, _ in _copies.values()) > COPIES_BYTES_MAX:
            _copies.popitem(last=False)
    return name


_copies: OrderedDict[bytes, tuple[np.ndarray[Any, Any], str]] = OrderedDict()
_lock: Final = threading.Lock()


def _is_same(copy: np.ndarray[Any, Any], data: np.ndarray[Any, Any]) -> bool:
    if copy.nbytes != data.nbytes:
        return False
    whole = data.nbytes & ~7
    if copy[whole:].tobytes() != data[whole:].tobytes():
        return False
    ours, theirs = copy[:whole].view(np.uint64), data[:whole].view(np.uint64)
    step = _BLOCK // 8
    return all(np.array_equal(ours[at : at + step], theirs[at : at + step]) for at in range(0, ours.size, step))


def _head(array: Array) -> str:
    return f"{array.kind}{array.byte_order}{array.layout}{array.item_bytes}{array.shape}{array.unit}"

"""Large arrays made smaller on a slow network: bytes put in order by significance (shuffled), then compressed.

Whether that pays is judged for each array: a sample says how much smaller it becomes and how fast, the measured rate what
the bytes that are left out would have taken. A packed array is a tagged value, so both sides know one when they see it:

    Tagged("packed", [method, class, byte order, layout, item bytes, shape, unit, bytes before, packed bytes])
"""

from __future__ import annotations

import functools
import math
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from .. import here
from ..errors import DoesNotTravel
from ..timers import background
from .frame import Array, Tagged, Written, check_type, written

TAG: Final = "packed"
#: Arrays smaller than this travel as they are.
BYTES_MIN: Final = 32 << 10
#: Bytes that are packed to see what it brings.
SAMPLE_BYTES: Final = 32 << 10
#: Bytes that an array may have before it was packed.
BYTES_MAX: Final = 4 << 30
#: Packing and unpacking must take this much less than what they save: a sample is in the processor's cache, the whole is not.
MARGIN: Final = 2.0
#: Unpacking takes this part of the time of packing.
UNPACK_PART: Final = 0.4
#: What is hardly smaller is not worth a copy.
RATIO_MAX: Final = 0.95

ZLIB: Final = "zlib"
ZSTD: Final = "zstd"


@dataclass(frozen=True)
class Packer:
    """Packs arrays where it pays at this rate; without a rate wherever they become smaller."""

    #: Bytes a second of the way they take.
    rate: float | None
    #: What the other side can unpack.
    methods: tuple[str, ...] = (ZLIB,)

    @functools.cached_property
    def said(self) -> Written:
        """What a call says of it, for its reply."""
        return written({"rate": self.rate, "methods": list(self.methods)})

    def __call__(self, array: Array) -> Any:
        """The packed array, or the array itself."""
        size = array.data.nbytes
        if size < BYTES_MIN:
            return array
        method = ZSTD if ZSTD in self.methods and _is_loaded() else ZLIB
        raw = np.frombuffer(array.data, np.uint8)
        whole = size // array.item_bytes * array.item_bytes
        start = (whole - SAMPLE_BYTES) // 2 // array.item_bytes * array.item_bytes
        sample = raw[start : start + SAMPLE_BYTES // array.item_bytes * array.item_bytes]
        if not sample.size:
            return array
        for _ in range(2):
            # Twice where it does not seem to pay: the first one may have been disturbed.
            began = time.perf_counter()
            ratio = len(_compress(method, _shuffle(sample, array.item_bytes))) / sample.size
            seconds = (time.perf_counter() - began) * size / sample.size
            if ratio > RATIO_MAX:
                return array
            if self._pays(size, ratio, seconds):
                break
        else:
            return array
        packed = _compress(method, _shuffle(raw, array.item_bytes))
        if len(packed) >= size:
            return array
        head = [method, array.kind, array.byte_order, array.layout, array.item_bytes, list(array.shape), array.unit, size]
        return Tagged(TAG, [*head, np.frombuffer(packed, np.uint8)])

    def _pays(self, size: int, ratio: float, seconds: float) -> bool:
        if self.rate is None:
            return True
        return size * (1 - ratio) / self.rate > MARGIN * seconds * (1 + UNPACK_PART)


def methods() -> tuple[str, ...]:
    """What this side can unpack, as far as it is loaded."""
    return (ZLIB, ZSTD) if _is_loaded() else (ZLIB,)


def unpack(inner: Any, take: Callable[[int], None] = lambda count: None) -> Array:
    """The array that was packed. `take` is told its bytes before there is memory for them, and may refuse.

    Raises DoesNotTravel where it is none, or larger than it says.
    """
    try:
        method, kind, byte_order, layout, item_bytes, shape, unit, size, packed = inner
        if any(type(number) is not int for number in (item_bytes, size, *shape)):
            raise ValueError("its sizes are no integers")
        if kind not in tuple("biufcmMSUV") or type(unit) is not str or type(packed) is not np.ndarray:
            raise ValueError("it has no such type")
        if not (0 < size <= BYTES_MAX and math.prod((item_bytes, *shape)) == size and min(shape, default=1) > 0):
            raise ValueError(f"its shape has not {size} bytes")
        check_type(kind, byte_order, item_bytes, unit)
        take(size)
        raw = _expand(method, packed.data, size)
        plain = np.empty(size, np.uint8)
        # All of them: there are as many as it announced.
        plain.reshape(-1, item_bytes)[...] = np.frombuffer(raw, np.uint8).reshape(item_bytes, -1).T
        return Array(kind, byte_order, layout, item_bytes, tuple(shape), unit, plain.data)
    except (ValueError, TypeError, zlib.error) as error:
        raise DoesNotTravel(f"the other side sent a packed array that is none: {error}") from None


def _shuffle(raw: np.ndarray[Any, Any], item_bytes: int) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(raw.reshape(-1, item_bytes).T) if item_bytes > 1 else raw


def _compress(method: str, data: np.ndarray[Any, Any]) -> bytes:
    if method == ZSTD:
        packed: bytes = _zstandard().ZstdCompressor(level=1, write_content_size=True).compress(data)
        return packed
    return zlib.compress(data.data, 1)


def _expand(method: str, packed: memoryview, size: int) -> bytes:
    if method == ZSTD and _zstandard() is not None:
        library = _zstandard()
        try:
            if library.frame_content_size(packed) != size:
                raise ValueError(f"it does not hold {size} bytes")
            raw: bytes = library.ZstdDecompressor().decompress(packed, max_output_size=size)
        except library.ZstdError as error:
            raise ValueError(str(error)) from None
    elif method == ZLIB:
        raw = zlib.decompressobj().decompress(packed, size)
    else:
        raise ValueError(f"it is packed with {method}, which is not installed here")
    if len(raw) != size:
        raise ValueError(f"it holds {len(raw)} bytes, not {size}")
    return raw


_library: Any = False
_is_loading = False


def _is_loaded() -> bool:
    """Whether the library is there. It takes longer to load than packing may save, so no call waits for that."""
    global _is_loading  # noqa: PLW0603 - begun once
    if _library is False and not _is_loading:
        _is_loading = True
        if here.is_unit():
            _zstandard()
        else:
            background(_zstandard)
    return _library is not False and _library is not None


def _zstandard() -> Any:
    """The library, or nothing where it is not installed."""
    global _library  # noqa: PLW0603 - looked for once
    if _library is False:
        try:
            import zstandard

            _library = zstandard
        except (ImportError, OSError):
            # Not installed; or a unit's walls are around it.
            _library = None
    return _library

"""Other ways to write a call's values than the frame's own: what the study compares the frame with.

    json, ujson   text; an array is its type, its shape and its numbers in decimal
    raw           a JSON head, then the arrays' bytes one after the other, joined: a copy on either side

They carry what JSON can say and plain numpy arrays. Inside a call they stand as one tagged buffer.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ..errors import DoesNotTravel
from .classes import articled

#: What a call can be written in.
FRAME: Final = "frame"
NAMES: Final = ("frame", "json", "ujson", "raw")

_U32: Final = struct.Struct("<I")
_ARRAY: Final = "array of"


def write(codec: str, value: Any) -> bytes:
    """The bytes of a value.

    Raises DoesNotTravel where JSON has no word for it, and ModuleNotFoundError where `ujson` is not installed.
    """
    if codec == "raw":
        buffers: list[bytes] = []
        head = json.dumps(_plain(value, lambda array: _keep(array, buffers)), allow_nan=True).encode()
        return b"".join([_U32.pack(len(head)), head, *buffers])
    plain = _plain(value, lambda array: array.ravel().tolist())
    if codec == "ujson":
        import ujson  # type: ignore[import-untyped, import-not-found, unused-ignore]

        text: str = ujson.dumps(plain)
        return text.encode()
    return json.dumps(plain, allow_nan=True).encode()


def read(codec: str, data: bytes | memoryview) -> Any:
    """The value of these bytes. A side without `ujson` reads its text with `json`."""
    if codec == "raw":
        view = memoryview(data)
        (head_bytes,) = _U32.unpack_from(view)
        position = _U32.size + head_bytes
        value, rest = json.loads(bytes(view[_U32.size : position])), view[position:]
        taken = 0

        def take(place: list[int]) -> bytes:
            # One after the other, as they were written: bytes that are named many times would be copied as often.
            nonlocal taken
            start, count = place
            if start != taken or not 0 <= count <= len(rest) - start:
                raise ValueError("its arrays are not where they should be")
            taken += count
            return rest[start : start + count].tobytes()

        return _value(value, take)
    plain: Any
    if codec == "ujson":
        try:
            import ujson  # type: ignore[import-untyped, import-not-found, unused-ignore]

            plain = ujson.loads(bytes(data))
        except ModuleNotFoundError:
            plain = json.loads(bytes(data))
    else:
        plain = json.loads(bytes(data))
    return _value(plain, None)


def _keep(array: np.ndarray[Any, Any], buffers: list[bytes]) -> list[int]:
    start = sum(map(len, buffers))
    buffers.append(array.tobytes())
    return [start, array.nbytes]


def _plain(value: Any, items: Callable[[np.ndarray[Any, Any]], Any]) -> Any:
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind in (list, tuple):
        return [_plain(item, items) for item in value]
    if kind is dict and all(type(key) is str for key in value):
        return {key: _plain(item, items) for key, item in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    if kind is np.ndarray and value.dtype.kind in "biuf":
        return {_ARRAY: value.dtype.str, "shape": list(value.shape), "items": items(value)}
    raise DoesNotTravel(f"{articled(kind.__qualname__)} does not travel as JSON; leave the codec at frame")


def _value(plain: Any, raw: Callable[[Any], bytes] | None) -> Any:
    if type(plain) is list:
        return plain if not plain or type(plain[0]) in (int, float) else [_value(item, raw) for item in plain]
    if type(plain) is dict:
        if _ARRAY in plain:
            dtype, items = np.dtype(plain[_ARRAY]), plain["items"]
            if dtype.kind not in "biuf":
                raise DoesNotTravel(f"the other side sent an array of {dtype}, which this codec does not have")
            flat = np.frombuffer(bytearray(raw(items)), dtype) if raw else np.array(items, dtype)
            return flat.reshape(plain["shape"])
        return {key: _value(item, raw) for key, item in plain.items()}
    return plain

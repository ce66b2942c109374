"""Numpy arrays as they lie in memory, of any type but `object`; they arrive as views of what was received."""

from __future__ import annotations

import re
import sys
from typing import Any, Final

import numpy as np

from ..errors import DoesNotTravel
from .frame import Array, Tagged
from .parts import array_of, integers_of, list_of, match_of, text_of

_DTYPE: Final = re.compile(r"[<>|][biufcmMSUV][0-9]{1,10}(\[[0-9a-zA-Z]{1,16}\])?")
#: The letters of long doubles, real and complex.
_LONG: Final = "gG"
_ORDERS: Final = {"<": "<", ">": ">", "|": "|", "=": "<" if sys.byteorder == "little" else ">"}


def lower_array(array: np.ndarray[Any, Any]) -> Any:
    """An array as a value of the contract: nearly always an `Array`."""
    if type(array) is not np.ndarray:
        raise DoesNotTravel(f"{type(array).__qualname__}, a kind of array, does not travel; pass np.asarray(…)")
    dtype = array.dtype
    if dtype.hasobject:
        raise DoesNotTravel("an array of objects does not travel: its elements are references into this process")
    if dtype.fields is not None or dtype.subdtype is not None or dtype.char in _LONG:
        raw = np.asarray(array, order="C").view(np.dtype((np.void, dtype.itemsize)))
        return Tagged("structured", [describe(dtype), lower_array(raw)])
    if dtype.kind not in "biufcmMSUV" or (dtype.kind in "fc" and dtype.itemsize not in (2, 4, 8, 16)):
        raise DoesNotTravel(f"an array of {dtype.name} does not travel")
    unit = ""
    if dtype.kind in "mM":
        name, count = np.datetime_data(dtype)
        unit = name if count == 1 else f"{count}{name}"
    if dtype.itemsize == 0:
        return Tagged("empty-items", [dtype.str, list(array.shape)])
    layout = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
    flat = array if array.flags.forc else np.ascontiguousarray(array)
    if flat.ndim == 0:
        flat = flat.reshape(1)
    raw = flat.reshape(-1, order="A").view(np.uint8) if flat.size else np.empty(0, np.uint8)
    one_byte = dtype.kind in "bSV" or (dtype.kind in "iu" and dtype.itemsize == 1)
    order = "|" if one_byte else _ORDERS[dtype.byteorder]
    return Array(dtype.kind, order, layout, dtype.itemsize, array.shape, unit, raw.data)


def raise_array(array: Array) -> np.ndarray[Any, Any]:
    dtype = _dtype(array)
    if dtype.itemsize != array.item_bytes:
        raise DoesNotTravel(f"an element of {dtype} has {dtype.itemsize} bytes, not {array.item_bytes}")
    flat = np.frombuffer(array.data, dtype=dtype) if array.data.nbytes else np.empty(0, dtype)
    return flat.reshape(array.shape, order="F" if array.layout == "F" else "C")


def _dtype(array: Array) -> np.dtype[Any]:
    size = array.item_bytes // 4 if array.kind == "U" else array.item_bytes
    text = f"{array.byte_order}{array.kind}{size}"
    return np.dtype(f"{text}[{array.unit}]" if array.unit else text)


def describe(dtype: np.dtype[Any]) -> Any:
    """A dtype as values: text, `{"fields": …}`, `{"items": …}` or `{"long": …}`."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"items": describe(base), "shape": list(shape)}
    if dtype.char in _LONG:
        # Which they are, the machine decides: their bytes mean something on machines that have the same.
        return {"long": dtype.str, "bits": int(np.finfo(dtype).nmant)}
    if dtype.fields is None:
        return dtype.str
    names = dtype.names or ()
    fields = [[name, describe(dtype.fields[name][0]), dtype.fields[name][1]] for name in names]
    return {"fields": fields, "bytes": dtype.itemsize}


def _read_description(text: Any) -> np.dtype[Any]:
    if type(text) is str:
        return np.dtype(match_of(_DTYPE, text)[0])
    if type(text) is not dict:
        raise ValueError("it describes no type")
    if "long" in text:
        dtype = np.dtype(match_of(_DTYPE, text["long"])[0])
        if dtype.char not in _LONG or np.finfo(dtype).nmant != text["bits"]:
            raise ValueError("its long doubles are others than this machine has")
        return dtype
    if "items" in text:
        return np.dtype((_read_description(text["items"]), tuple(integers_of(text["shape"], len(text["shape"])))))
    names, formats, offsets = [], [], []
    for field in list_of(text["fields"]):
        name, inner, offset = list_of(field, 3)
        names.append(text_of(name))
        formats.append(_read_description(inner))
        offsets.append(offset)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": text["bytes"]})


def raise_structured(inner: Any) -> Any:
    description, raw = list_of(inner, 2)
    dtype, raw = _read_description(description), array_of(raw)
    if dtype.hasobject or raw.dtype.kind != "V" or raw.dtype.itemsize != dtype.itemsize:
        raise ValueError("its elements have another size, or are objects")
    return raw.view(dtype)


def raise_view(inner: Any) -> np.ndarray[Any, Any]:
    block, description, shape, strides, offset = list_of(inner, 5)
    block, dtype = array_of(block), _read_description(description)
    if block.dtype != np.uint8 or block.ndim != 1 or dtype.hasobject or not dtype.itemsize:
        raise ValueError("it is no part of a block of bytes")
    rank = len(list_of(shape))
    # It checks itself that all of it lies in the block.
    return np.ndarray(integers_of(shape, rank), dtype, block.data, integers_of([offset], 1)[0], integers_of(strides, rank))


def raise_empty_items(inner: Any) -> np.ndarray[Any, Any]:
    text, shape = list_of(inner, 2)
    dtype = np.dtype(match_of(_DTYPE, text)[0])
    if dtype.itemsize:
        # Memory that nobody wrote to would be shown.
        raise ValueError(f"its items have {dtype.itemsize} bytes")
    # Not by np.empty, which makes items of no bytes one character long.
    return np.ndarray(tuple(integers_of(shape, len(shape))), dtype)


def raise_scalar(inner: Any) -> Any:
    array = array_of(inner)
    if array.ndim:
        raise ValueError("it holds several")
    return array[()]

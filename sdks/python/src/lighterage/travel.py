"""What travels: objects of Python as values of the frame, and back. Nothing is pickled and nothing is executed.

Numpy arrays travel as they lie in memory, of any type but `object`, and arrive as views of what was received. Classes
travel by name: an object of a dataclass, a named tuple or an enum is rebuilt only if its class is defined in one of the
modules both sides share, which are the modules of the function (`Classes`).
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import importlib
import pathlib
import sys
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from .errors import DoesNotTravel
from .frame import Array, Buffer, Tagged

_ORDERS: Final = {"<": "<", ">": ">", "|": "|", "=": "<" if sys.byteorder == "little" else ">"}


class Classes:
    """The classes both sides know: those defined at the top of these modules, by the names the bundle has for them.

    `__main__` is called by its file's name in a bundle, so a name may differ from `__module__`. A unit makes one of the
    Python files in its bundle.
    """

    def __init__(self, modules: dict[str, str] | Iterable[str] = ()) -> None:
        names = modules if isinstance(modules, dict) else {name: name for name in modules}
        self._bundle_names = dict(names)
        self._here = {bundle: here for here, bundle in names.items()}

    def has(self, kind: type) -> bool:
        """Whether the other side finds this class, by what can be told from here."""
        return kind.__module__ in self._bundle_names and not any(
            part.startswith(("_", "<")) for part in kind.__qualname__.split(".")
        )

    def name_of(self, kind: type) -> str:
        """`module:Class`, as the other side has it."""
        module = self._bundle_names.get(kind.__module__)
        if module is None or "<locals>" in kind.__qualname__:
            raise DoesNotTravel(
                f"an object of {kind.__module__}.{kind.__qualname__} does not travel: its class must be defined at the top "
                "of the function's module or of a local module that it imports"
            )
        return f"{module}:{kind.__qualname__}"

    def find(self, name: str) -> type:
        """The class of this name."""
        module_name, _, path = name.partition(":")
        here = self._here.get(module_name, "")
        found: Any = sys.modules.get(here)
        if found is None and here:
            # A module of the function that is imported only when it is needed.
            try:
                found = importlib.import_module(here)
            except ImportError:
                found = None
        for part in path.split("."):
            found = None if found is None or part.startswith("_") else vars(found).get(part)
        if not isinstance(found, type):
            raise DoesNotTravel(f"the other side sent an object of {name!r}, which the function's modules do not define")
        return found


NO_CLASSES: Final = Classes()


def lower_with(classes: Classes, pack: Callable[[Array], Any] | None = None) -> Callable[[Any], Any]:
    """What `frame.encode` asks about an object that is no value of the contract. `pack` may make arrays smaller."""

    def lower(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            lowered = lower_array(value)
            return pack(lowered) if pack is not None and type(lowered) is Array else lowered
        if isinstance(value, np.generic):
            return Tagged("scalar", lower_array(np.asarray(value)))
        if type(value) is int:
            return Tagged("int", str(value))
        if type(value) is list:
            return _lower_long_list(value)
        kind = type(value)
        known = _LOWER.get(kind)
        if known is not None:
            return known(value)
        if isinstance(value, enum.Enum):
            return Tagged("enum", [classes.name_of(kind), value.name])
        if isinstance(value, tuple):
            if hasattr(kind, "_fields"):
                return Tagged("namedtuple", [classes.name_of(kind), list(value)])
            return Tagged("tuple", list(value))
        if dataclasses.is_dataclass(value):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return Tagged("dataclass", [classes.name_of(kind), fields])
        if isinstance(value, pathlib.PurePath):
            return Tagged("path", str(value))
        for base in (str, bytes, int, float, dict, list):
            if isinstance(value, base):
                raise DoesNotTravel(f"{kind.__qualname__}, a kind of {base.__name__}, does not travel; pass {base.__name__}(…)")
        raise DoesNotTravel(_why_not(value))

    return lower


def raise_with(classes: Classes) -> Callable[[Any], Any]:
    """What `frame.decode` asks to make Python's objects out of tagged values, buffers and arrays."""

    def raise_(value: Any) -> Any:
        if isinstance(value, Array):
            return _raise_array(value)
        if isinstance(value, Buffer):
            return bytes(value.data)
        name, inner = value.name, value.value
        known = _RAISE.get(name)
        try:
            if known is not None:
                return known(inner)
            if name == "enum":
                found = classes.find(inner[0])
                if issubclass(found, enum.Enum):
                    return found[inner[1]]
            elif name == "namedtuple":
                found = classes.find(inner[0])
                if issubclass(found, tuple):
                    return tuple.__new__(found, inner[1])
            elif name == "dataclass":
                return _raise_dataclass(classes.find(inner[0]), inner[1])
        except (TypeError, ValueError, KeyError, IndexError, ArithmeticError, AttributeError) as error:
            if isinstance(error, DoesNotTravel):
                raise
            raise DoesNotTravel(f"the other side sent a {name} that is none: {error}") from None
        raise DoesNotTravel(f"the other side sent a {name!r}, which this version does not know")

    return raise_


def _raise_dataclass(kind: type, fields: dict[str, Any]) -> Any:
    """Sets the fields as they were: `__init__` and `__post_init__` ran where the object was made."""
    if not dataclasses.is_dataclass(kind) or {field.name for field in dataclasses.fields(kind)} != set(fields):
        raise DoesNotTravel(f"{kind.__qualname__} has other fields here: {', '.join(fields)}")
    made = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def _lower_long_list(values: list[Any]) -> Any:
    """Numbers of one type travel as an array of them; any other list as it is."""
    kind = type(values[0])
    if kind not in (float, int) or set(map(type, values)) != {kind}:
        return values
    try:
        return Tagged("numbers", lower_array(np.array(values, np.float64 if kind is float else np.int64)))
    except OverflowError:
        return values


def lower_array(array: np.ndarray[Any, Any]) -> Any:
    """An array as a value of the contract: nearly always an `Array`."""
    if type(array) is not np.ndarray:
        raise DoesNotTravel(f"{type(array).__qualname__}, a kind of array, does not travel; pass np.asarray(…)")
    dtype = array.dtype
    if dtype.hasobject:
        raise DoesNotTravel("an array of objects does not travel: its elements are references into this process")
    if dtype.fields is not None or dtype.subdtype is not None:
        packed = np.ascontiguousarray(array)
        raw = packed.view(np.dtype((np.void, dtype.itemsize))) if dtype.itemsize else packed
        return Tagged("structured", [_describe(dtype), lower_array(raw)])
    if dtype.kind not in "biufcmMSUV" or (dtype.kind in "fc" and dtype.itemsize not in (2, 4, 8, 16)) or dtype.char in "gG":
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


def _kept() -> Any:
    from . import kept

    return kept


def _unpack(inner: Any) -> Array:
    from .pack import unpack

    return unpack(inner)


def _raise_array(array: Array) -> np.ndarray[Any, Any]:
    dtype = _dtype(array)
    if dtype.itemsize != array.item_bytes:
        raise DoesNotTravel(f"an element of {dtype} has {dtype.itemsize} bytes, not {array.item_bytes}")
    flat = np.frombuffer(array.data, dtype=dtype) if array.data.nbytes else np.empty(0, dtype)
    return flat.reshape(array.shape, order="F" if array.layout == "F" else "C")


def _dtype(array: Array) -> np.dtype[Any]:
    size = array.item_bytes // 4 if array.kind == "U" else array.item_bytes
    text = f"{array.byte_order}{array.kind}{size}"
    return np.dtype(f"{text}[{array.unit}]" if array.unit else text)


def _describe(dtype: np.dtype[Any]) -> Any:
    """A dtype as values: text, `{"fields": …}` or `{"items": …}`."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"items": _describe(base), "shape": list(shape)}
    if dtype.fields is None:
        return dtype.str
    names = dtype.names or ()
    fields = [[name, _describe(dtype.fields[name][0]), dtype.fields[name][1]] for name in names]
    return {"fields": fields, "bytes": dtype.itemsize}


def _read_description(text: Any) -> np.dtype[Any]:
    if isinstance(text, str):
        return np.dtype(text)
    if "items" in text:
        return np.dtype((_read_description(text["items"]), tuple(text["shape"])))
    names, formats, offsets = [], [], []
    for name, inner, offset in text["fields"]:
        names.append(name)
        formats.append(_read_description(inner))
        offsets.append(offset)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": text["bytes"]})


def _raise_structured(inner: Any) -> Any:
    dtype = _read_description(inner[0])
    if dtype.hasobject:
        raise DoesNotTravel("the other side sent an array of objects")
    return inner[1].view(dtype)


def _lower_datetime(value: datetime.datetime) -> Tagged:
    zone = getattr(value.tzinfo, "key", None)
    return Tagged("datetime", [value.isoformat(), zone, value.fold] if zone else value.isoformat())


def _raise_datetime(inner: Any) -> datetime.datetime:
    if isinstance(inner, str):
        return datetime.datetime.fromisoformat(inner)
    from zoneinfo import ZoneInfo

    text, zone, fold = inner
    return datetime.datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)


def _why_not(value: Any) -> str:
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}" if kind.__module__ != "builtins" else kind.__qualname__
    if callable(value):
        return f"{getattr(value, '__qualname__', name)} does not travel: code travels only as the function's own module"
    if hasattr(value, "fileno"):
        return f"a {name} does not travel: it is open on this machine; pass what it holds"
    if hasattr(value, "__next__"):
        return f"a {name} does not travel: it can be read only once, here; pass list(…)"
    return f"a {name} does not travel; pass numbers, text, bytes, lists, dicts, dataclasses or numpy arrays"


_LOWER: Final[dict[type, Callable[[Any], Any]]] = {
    tuple: lambda value: Tagged("tuple", list(value)),
    set: lambda value: Tagged("set", list(value)),
    frozenset: lambda value: Tagged("frozenset", list(value)),
    dict: lambda value: Tagged("dict", [[key, item] for key, item in value.items()]),
    bytearray: lambda value: Tagged("bytearray", Buffer(memoryview(value))),
    memoryview: lambda value: Buffer(value.cast("B") if value.c_contiguous else memoryview(value.tobytes())),
    complex: lambda value: Tagged("complex", [value.real, value.imag]),
    datetime.datetime: _lower_datetime,
    datetime.date: lambda value: Tagged("date", value.isoformat()),
    datetime.time: lambda value: Tagged("time", value.isoformat()),
    datetime.timedelta: lambda value: Tagged("timedelta", [value.days, value.seconds, value.microseconds]),
    decimal.Decimal: lambda value: Tagged("decimal", str(value)),
    fractions.Fraction: lambda value: Tagged("fraction", str(value)),
    uuid.UUID: lambda value: Tagged("uuid", str(value)),
    range: lambda value: Tagged("range", [value.start, value.stop, value.step]),
    slice: lambda value: Tagged("slice", [value.start, value.stop, value.step]),
    type(Ellipsis): lambda value: Tagged("ellipsis", None),
}

_RAISE: Final[dict[str, Callable[[Any], Any]]] = {
    "int": int,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": lambda inner: dict(map(tuple, inner)),
    "bytearray": bytearray,
    "complex": lambda inner: complex(*inner),
    "datetime": _raise_datetime,
    "date": datetime.date.fromisoformat,
    "time": datetime.time.fromisoformat,
    "timedelta": lambda inner: datetime.timedelta(*inner),
    "decimal": decimal.Decimal,
    "fraction": fractions.Fraction,
    "uuid": uuid.UUID,
    "path": pathlib.PurePath,
    "range": lambda inner: range(*inner),
    "slice": lambda inner: slice(*inner),
    "ellipsis": lambda inner: Ellipsis,
    "scalar": lambda inner: inner[()],
    "structured": _raise_structured,
    "numbers": lambda inner: inner.tolist(),
    "packed": lambda inner: _raise_array(_unpack(inner)),
    "keep": lambda inner: _kept().keep(inner),
    "kept": lambda inner: _kept().find(inner),
    "empty-items": lambda inner: np.empty(inner[1], dtype=inner[0]),
}

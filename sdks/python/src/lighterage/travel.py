"""What travels: objects of Python as values of the frame, and back. Nothing is pickled and nothing is executed.

Numpy arrays travel as they lie in memory, of any type but `object`, and arrive as views of what was received. Classes
travel by name: an object of a dataclass, a named tuple or an enum is rebuilt only if its class is defined in one of the
modules both sides share, which are the modules of the function (`Classes`).

What arrives is not believed: every value is of the very type its tag wants before anything is made of it, for what stands
in its place could have methods that are run, or announce a gigabyte in ten bytes.
"""

from __future__ import annotations

import builtins
import dataclasses
import datetime
import decimal
import enum
import fractions
import importlib
import pathlib
import re
import sys
import types
import uuid
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from .errors import CallTooLarge, DoesNotTravel, LighterageError
from .frame import Array, Buffer, Tagged

#: Bytes that the values of one call or reply may take beside what was received: copies, and what was packed.
BYTES_MAX: Final = 4 << 30
#: Bits of an integer that travels in decimal, as Python writes one by default, and digits it has at most.
DECIMAL_BITS: Final = 14_000
DIGITS_MAX: Final = 4_300

_DECIMAL: Final = re.compile(rf"-?[0-9]{{1,{DIGITS_MAX}}}")
_HEXADECIMAL: Final = re.compile(r"-?0x[0-9a-f]+")
_FRACTION: Final = re.compile(rf"(-?[0-9]{{1,{DIGITS_MAX}}})(?:/([0-9]{{1,{DIGITS_MAX}}}))?")
_DTYPE: Final = re.compile(r"[<>|][biufcmMSUV][0-9]{1,10}(\[[0-9a-zA-Z]{1,16}\])?")
#: A zone's name; what is looked up by it is a file.
_ZONE: Final = re.compile(r"[A-Za-z0-9_+-]{1,32}(/[A-Za-z0-9_+-]{1,32}){0,3}")

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
        kind = defined(found, here, path)
        if kind is None:
            raise DoesNotTravel(f"the other side sent an object of {name!r}, which the function's modules do not define")
        return kind


# Looked up past what a class, or a module that is loaded when it is asked, would have run.
_MEMBERS: Final[Any] = vars(type)["__dict__"]
_QUALNAME: Final[Any] = vars(type)["__qualname__"]
_ORDER: Final[Any] = vars(type)["__mro__"]
_GLOBALS: Final[Any] = vars(types.ModuleType)["__dict__"]


def defined(module: Any, name: str, path: str) -> type | None:
    """The class that a module itself defines at this path; none for what it only imports. Runs nothing."""
    if not issubclass(type(module), types.ModuleType):
        return None
    members, found = _GLOBALS.__get__(module), None
    for part in path.split("."):
        found = members.get(part)
        if not issubclass(type(found), type):
            return None
        members = _MEMBERS.__get__(found)
    same = found is not None and members.get("__module__") == name and _QUALNAME.__get__(found) == path
    return found if same else None


_BUILTIN: Final = frozenset(one for one in vars(builtins).values() if isinstance(one, type))


def has_hook(kind: type, *hooks: str) -> bool:
    """Whether one of these methods of a class is not Python's own. Runs nothing."""
    return any(
        base not in _BUILTIN and not _MEMBERS.__get__(base).keys().isdisjoint(hooks) for base in _ORDER.__get__(kind)
    )


#: Classes that were checked.
_plain: weakref.WeakSet[type] = weakref.WeakSet()


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
            return Tagged("int", str(value) if value.bit_length() <= DECIMAL_BITS else hex(value))
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
                _check_plain(kind)
                return Tagged("namedtuple", [classes.name_of(kind), list(value)])
            return Tagged("tuple", list(value))
        if dataclasses.is_dataclass(value):
            _check_plain(kind)
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return Tagged("dataclass", [classes.name_of(kind), fields])
        if isinstance(value, pathlib.PurePath):
            return Tagged("path", str(value))
        for base in (str, bytes, int, float, dict, list):
            if isinstance(value, base):
                raise DoesNotTravel(f"{kind.__qualname__}, a kind of {base.__name__}, does not travel; pass {base.__name__}(…)")
        raise DoesNotTravel(_why_not(value))

    return lower


def raise_with(classes: Classes, bytes_max: int = BYTES_MAX) -> Callable[[Any], Any]:
    """What `frame.decode` asks to make Python's objects out of tagged values, buffers and arrays.

    What is copied or unpacked takes `bytes_max` altogether; beyond that it raises CallTooLarge.
    """
    left = bytes_max

    def take(count: int) -> None:
        nonlocal left
        left -= count
        if left < 0:
            raise CallTooLarge(f"the other side sent values that take more than {bytes_max} bytes")

    def raise_(value: Any) -> Any:
        try:
            if isinstance(value, Array):
                return _raise_array(value)
            if isinstance(value, Buffer):
                take(value.data.nbytes)
                return bytes(value.data)
            name, inner = value.name, value.value
            known = _RAISE.get(name)
            if known is not None:
                return known(inner)
            bulky = _RAISE_BULKY.get(name)
            if bulky is not None:
                return bulky(inner, take)
            if name == "enum":
                class_name, member = _items(inner, 2)
                found = classes.find(class_name)
                if issubclass(found, enum.Enum):
                    return found[_text(member)]
            elif name == "namedtuple":
                class_name, items = _items(inner, 2)
                return _raise_namedtuple(classes.find(class_name), _items(items))
            elif name == "dataclass":
                class_name, fields = _items(inner, 2)
                return _raise_dataclass(classes.find(class_name), fields)
        except (LighterageError, _missing()):
            raise
        except Exception as error:
            word = value.name if isinstance(value, Tagged) else type(value).__name__.lower()
            raise DoesNotTravel(f"the other side sent a {word} that is none: {error}") from None
        raise DoesNotTravel(f"the other side sent a {name!r}, which this version does not know")

    return raise_


def _raise_namedtuple(kind: type, items: list[Any]) -> Any:
    _check_plain(kind)
    if not issubclass(kind, tuple) or len(getattr(kind, "_fields", ())) != len(items):
        raise DoesNotTravel(f"{kind.__qualname__} is no named tuple of {len(items)} items here")
    return tuple.__new__(kind, items)


def _raise_dataclass(kind: type, fields: Any) -> Any:
    """Sets the fields as they were: `__init__` and `__post_init__` ran where the object was made."""
    if type(fields) is not dict or not dataclasses.is_dataclass(kind):
        raise DoesNotTravel(f"{kind.__qualname__} is no dataclass here")
    if {field.name for field in dataclasses.fields(kind)} != set(fields):
        raise DoesNotTravel(f"{kind.__qualname__} has other fields here: {', '.join(map(str, fields))}")
    _check_plain(kind)
    made = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def _check_plain(kind: type) -> None:
    """Checks that making an object of a class, setting its fields and forgetting it runs nothing of the class."""
    if kind in _plain:
        return
    if has_hook(kind, "__del__"):
        raise DoesNotTravel(f"an object of {kind.__qualname__} does not travel: its __del__ would be run on either side")
    layers = [_MEMBERS.__get__(base) for base in _ORDER.__get__(kind)]
    for field in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
        found = next((members[field.name] for members in layers if field.name in members), None)
        if type(found) is not types.MemberDescriptorType and hasattr(type(found), "__set__"):
            raise DoesNotTravel(
                f"an object of {kind.__qualname__} does not travel: its field {field.name} is a property, which runs code"
            )
    _plain.add(kind)


# What the values within a tag are. Each gives back what it was given, or raises.


def _items(value: Any, count: int | None = None) -> list[Any]:
    if type(value) is not list or (count is not None and len(value) != count):
        raise ValueError(f"it holds no list of {count} values" if count is not None else "it holds no list")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("it holds no text")
    return value


def _integers(value: Any, count: int) -> list[int]:
    if any(type(item) is not int for item in _items(value, count)):
        raise ValueError("it holds no integers")
    return value  # type: ignore[no-any-return]


def _array_of(value: Any) -> np.ndarray[Any, Any]:
    if type(value) is not np.ndarray:
        raise ValueError("it holds no array")
    return value


def _matched(pattern: re.Pattern[str], value: Any) -> re.Match[str]:
    found = pattern.fullmatch(_text(value))
    if found is None:
        raise ValueError("it is written in another way")
    return found


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
        raw = np.ascontiguousarray(array).view(np.dtype((np.void, dtype.itemsize)))
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


def _missing() -> type[Exception]:
    from .kept import Missing

    return Missing


def _raise_keep(inner: Any) -> Any:
    from . import kept

    name, array = _items(inner, 2)
    return kept.keep(_text(name), _array_of(array))


def _raise_kept(inner: Any, take: Callable[[int], None]) -> Any:
    from . import kept

    found = kept.find(_text(inner))
    take(found.nbytes)
    return found


def _raise_packed(inner: Any, take: Callable[[int], None]) -> Any:
    from .pack import unpack

    return _raise_array(unpack(inner, take))


def _raise_numbers(inner: Any, take: Callable[[int], None]) -> list[Any]:
    array = _array_of(inner)
    if array.ndim != 1 or array.dtype.str[1:] not in ("f8", "i8"):
        raise ValueError("it holds no list of numbers")
    take(array.nbytes)
    found: list[Any] = array.tolist()
    return found


def _raise_bytearray(inner: Any) -> bytearray:
    if type(inner) is not bytes:
        raise ValueError("it holds no bytes")
    return bytearray(inner)


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
    if type(text) is str:
        return np.dtype(_matched(_DTYPE, text)[0])
    if type(text) is not dict:
        raise ValueError("it describes no type")
    if "items" in text:
        return np.dtype((_read_description(text["items"]), tuple(_integers(text["shape"], len(text["shape"])))))
    names, formats, offsets = [], [], []
    for field in _items(text["fields"]):
        name, inner, offset = _items(field, 3)
        names.append(_text(name))
        formats.append(_read_description(inner))
        offsets.append(offset)
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": text["bytes"]})


def _raise_structured(inner: Any) -> Any:
    description, raw = _items(inner, 2)
    dtype, raw = _read_description(description), _array_of(raw)
    if dtype.hasobject or raw.dtype.kind != "V" or raw.dtype.itemsize != dtype.itemsize:
        raise ValueError("its elements have another size, or are objects")
    return raw.view(dtype)


def _raise_empty_items(inner: Any) -> np.ndarray[Any, Any]:
    text, shape = _items(inner, 2)
    dtype = np.dtype(_matched(_DTYPE, text)[0])
    if dtype.itemsize:
        # Memory that nobody wrote to would be shown.
        raise ValueError(f"its items have {dtype.itemsize} bytes")
    # Not by np.empty, which makes items of no bytes one character long.
    return np.ndarray(tuple(_integers(shape, len(shape))), dtype)


def _raise_scalar(inner: Any) -> Any:
    array = _array_of(inner)
    if array.ndim:
        raise ValueError("it holds several")
    return array[()]


def _raise_int(inner: Any) -> int:
    text = _text(inner)
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    return int(_matched(_DECIMAL, text)[0])


def _lower_fraction(value: fractions.Fraction) -> Tagged:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > DECIMAL_BITS:
        raise DoesNotTravel(f"a Fraction of more than {DECIMAL_BITS} bits does not travel; pass its numerator and denominator")
    return Tagged("fraction", str(value))


def _raise_fraction(inner: Any) -> fractions.Fraction:
    # Not by its own reading of text, which takes exponents.
    above, below = _matched(_FRACTION, inner).groups()
    return fractions.Fraction(int(above), int(below or 1))


def _raise_decimal(inner: Any) -> decimal.Decimal:
    # Of any precision: one that is more than the context has is not rounded.
    return decimal.Decimal(_text(inner))


def _raise_complex(inner: Any) -> complex:
    real, imaginary = _items(inner, 2)
    if type(real) is not float or type(imaginary) is not float:
        raise ValueError("it holds no floats")
    return complex(real, imaginary)


def _lower_datetime(value: datetime.datetime) -> Tagged:
    zone = getattr(value.tzinfo, "key", None)
    return Tagged("datetime", [value.isoformat(), zone, value.fold] if zone else value.isoformat())


def _raise_datetime(inner: Any) -> datetime.datetime:
    if type(inner) is str:
        return datetime.datetime.fromisoformat(inner)
    from zoneinfo import ZoneInfo

    text, zone, fold = _items(inner, 3)
    return datetime.datetime.fromisoformat(_text(text)).replace(
        tzinfo=ZoneInfo(_matched(_ZONE, zone)[0]), fold=_integers([fold], 1)[0]
    )


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
    fractions.Fraction: _lower_fraction,
    uuid.UUID: lambda value: Tagged("uuid", str(value)),
    range: lambda value: Tagged("range", [value.start, value.stop, value.step]),
    slice: lambda value: Tagged("slice", [value.start, value.stop, value.step]),
    type(Ellipsis): lambda value: Tagged("ellipsis", None),
}

_RAISE: Final[dict[str, Callable[[Any], Any]]] = {
    "int": _raise_int,
    "tuple": lambda inner: tuple(_items(inner)),
    "set": lambda inner: set(_items(inner)),
    "frozenset": lambda inner: frozenset(_items(inner)),
    "dict": lambda inner: dict(_items(pair, 2) for pair in _items(inner)),
    "bytearray": _raise_bytearray,
    "complex": _raise_complex,
    "datetime": _raise_datetime,
    "date": lambda inner: datetime.date.fromisoformat(_text(inner)),
    "time": lambda inner: datetime.time.fromisoformat(_text(inner)),
    "timedelta": lambda inner: datetime.timedelta(*_integers(inner, 3)),
    "decimal": _raise_decimal,
    "fraction": _raise_fraction,
    "uuid": lambda inner: uuid.UUID(_text(inner)),
    "path": lambda inner: pathlib.PurePath(_text(inner)),
    "range": lambda inner: range(*_integers(inner, 3)),
    "slice": lambda inner: slice(*_items(inner, 3)),
    "ellipsis": lambda inner: Ellipsis,
    "scalar": _raise_scalar,
    "structured": _raise_structured,
    "empty-items": _raise_empty_items,
    "keep": _raise_keep,
}

#: What takes memory beside what was received.
_RAISE_BULKY: Final[dict[str, Callable[[Any, Callable[[int], None]], Any]]] = {
    "numbers": _raise_numbers,
    "packed": _raise_packed,
    "kept": _raise_kept,
}

"""What travels: objects of Python as values of the frame, and back. Nothing is pickled and nothing is executed.

Numpy arrays travel as they lie in memory, of any type but `object`, and arrive as views of what was received. Classes
travel by name: an object of a dataclass, a named tuple or an enum is rebuilt only if its class is defined in one of the
modules both sides share, which are the modules of the function (`Classes`).

What arrives is not believed: every value is of the very type its tag wants before anything is made of it, for what stands
in its place could have methods that are run, or announce a gigabyte in ten bytes.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import re
import uuid
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ..errors import CallTooLarge, DoesNotTravel, LighterageError
from . import again, kept
from .arrays import (
    lower_array,
    raise_array,
    raise_empty_items,
    raise_scalar,
    raise_structured,
    raise_view,
)
from .classes import MEMBERS, ORDER, Classes, articled, check_plain
from .frame import Array, Buffer, Tagged
from .pack import unpack
from .parts import array_of, integers_of, list_of, match_of, text_of

#: Bytes that the values of one call or reply may take beside what was received: copies, and what was packed.
BYTES_MAX: Final = 4 << 30
#: Bits of an integer that travels in decimal, as Python writes one by default, and digits it has at most.
DECIMAL_BITS: Final = 14_000
DIGITS_MAX: Final = 4_300

_DECIMAL: Final = re.compile(rf"-?[0-9]{{1,{DIGITS_MAX}}}")
_HEXADECIMAL: Final = re.compile(r"-?0x[0-9a-f]+")
_FRACTION: Final = re.compile(rf"(-?[0-9]{{1,{DIGITS_MAX}}})(?:/([0-9]{{1,{DIGITS_MAX}}}))?")
#: A zone's name; what is looked up by it is a file.
_ZONE: Final = re.compile(r"[A-Za-z0-9_+-]{1,32}(/[A-Za-z0-9_+-]{1,32}){0,3}")


#: What Python's own enums are made of.
_ENUMS: Final = frozenset(one for one in vars(enum).values() if isinstance(one, type))


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
        if type(value) is str:
            # Only what has no UTF-8 comes here.
            return Tagged("odd-str", value.encode("utf-8", "surrogatepass"))
        kind = type(value)
        known = _LOWER.get(kind)
        if known is not None:
            return known(value)
        if isinstance(value, enum.Flag):
            return _lower_flag(value, classes.name_of(kind))
        if isinstance(value, enum.Enum):
            return Tagged("enum", [classes.name_of(kind), value.name])
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            check_plain(kind)
            return Tagged("namedtuple", [classes.name_of(kind), list(value)])
        if dataclasses.is_dataclass(value):
            check_plain(kind)
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return Tagged("dataclass", [classes.name_of(kind), fields])
        if isinstance(value, pathlib.PurePath):
            return Tagged("path", str(value))
        for base in (str, bytes, int, float, dict, list, tuple):
            if isinstance(value, base):
                raise DoesNotTravel(f"{kind.__qualname__}, a kind of {base.__name__}, does not travel; pass {base.__name__}(…)")
        raise DoesNotTravel(_why_not(value))

    return lower


def raise_with(classes: Classes, bytes_max: int = BYTES_MAX) -> Callable[[Any], Any]:
    """What `frame.decode` asks to make Python's objects out of tagged values, buffers and arrays.

    What is copied or unpacked takes `bytes_max` altogether; beyond that it raises CallTooLarge.
    """
    left = bytes_max
    known_here = again.Known()

    def take(count: int) -> None:
        nonlocal left
        left -= count
        if left < 0:
            raise CallTooLarge(f"the other side sent values that take more than {bytes_max} bytes")

    def raise_(value: Any) -> Any:
        try:
            if isinstance(value, Array):
                return raise_array(value)
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
            if name == again.SHARED:
                return known_here.keep(list_of(inner, 2))
            if name == again.AGAIN:
                return known_here.again(inner)
            if name == "flag":
                class_name, bits = list_of(inner, 2)
                return _raise_flag(classes.find(class_name), bits)
            if name == "enum":
                class_name, member = list_of(inner, 2)
                found = classes.find(class_name)
                if issubclass(found, enum.Enum):
                    return found[text_of(member)]
            elif name == "namedtuple":
                class_name, items = list_of(inner, 2)
                return _raise_namedtuple(classes.find(class_name), list_of(items))
            elif name == "dataclass":
                class_name, fields = list_of(inner, 2)
                return _raise_dataclass(classes.find(class_name), fields)
        except (LighterageError, kept.Missing):
            raise
        except Exception as error:
            word = value.name if isinstance(value, Tagged) else type(value).__name__.lower()
            raise DoesNotTravel(f"the other side sent {articled(word)} that is none: {error}") from None
        raise DoesNotTravel(f"the other side sent {name!r}, which this version does not know")

    return raise_


def _lower_flag(value: enum.Flag, class_name: str) -> Tagged:
    """One that has a name travels by it, as members of any enum do; several together by their bits."""
    if value.name is not None and type(value).__members__.get(value.name) is value:
        return Tagged("enum", [class_name, value.name])
    _check_flag(type(value))
    return Tagged("flag", [class_name, int(value.value)])


def _raise_flag(kind: type, bits: Any) -> enum.Flag:
    """Members of a flag together, which Python itself puts together."""
    if not issubclass(kind, enum.Flag) or type(bits) is not int:
        raise ValueError("it is no flag")
    _check_flag(kind)
    return kind(bits)


def _check_flag(kind: type) -> None:
    own = [base for base in ORDER.__get__(kind) if base not in _ENUMS]
    if type(kind) is not enum.EnumMeta or any("_missing_" in MEMBERS.__get__(base) for base in own):
        raise DoesNotTravel(f"several members of {kind.__qualname__} do not travel together: it has a _missing_ of its own")


def _raise_namedtuple(kind: type, items: list[Any]) -> Any:
    check_plain(kind)
    if not issubclass(kind, tuple) or len(getattr(kind, "_fields", ())) != len(items):
        raise DoesNotTravel(f"{kind.__qualname__} is no named tuple of {len(items)} items here")
    return tuple.__new__(kind, items)


def _raise_dataclass(kind: type, fields: Any) -> Any:
    """Sets the fields as they were: `__init__` and `__post_init__` ran where the object was made."""
    if type(fields) is not dict or not dataclasses.is_dataclass(kind):
        raise DoesNotTravel(f"{kind.__qualname__} is no dataclass here")
    if {field.name for field in dataclasses.fields(kind)} != set(fields):
        raise DoesNotTravel(f"{kind.__qualname__} has other fields here: {', '.join(map(str, fields))}")
    check_plain(kind)
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


def _raise_keep(inner: Any) -> Any:
    name, array = list_of(inner, 2)
    return kept.keep(text_of(name), array_of(array), lower_array(array))


def _raise_kept(inner: Any, take: Callable[[int], None]) -> Any:
    found = kept.find(text_of(inner))
    take(found.nbytes)
    return found


def _raise_packed(inner: Any, take: Callable[[int], None]) -> Any:
    return raise_array(unpack(inner, take))


def _raise_numbers(inner: Any, take: Callable[[int], None]) -> list[Any]:
    array = array_of(inner)
    if array.ndim != 1 or array.dtype.str[1:] not in ("f8", "i8"):
        raise ValueError("it holds no list of numbers")
    take(array.nbytes)
    found: list[Any] = array.tolist()
    return found


def _raise_bytearray(inner: Any) -> bytearray:
    if type(inner) is not bytes:
        raise ValueError("it holds no bytes")
    return bytearray(inner)


def _raise_odd_text(inner: Any) -> str:
    if type(inner) is not bytes:
        raise ValueError("it holds no bytes")
    return inner.decode("utf-8", "surrogatepass")


def _raise_int(inner: Any) -> int:
    text = text_of(inner)
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    return int(match_of(_DECIMAL, text)[0])


def _lower_fraction(value: fractions.Fraction) -> Tagged:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > DECIMAL_BITS:
        raise DoesNotTravel(f"a Fraction of more than {DECIMAL_BITS} bits does not travel; pass its numerator and denominator")
    return Tagged("fraction", str(value))


def _raise_fraction(inner: Any) -> fractions.Fraction:
    # Not by its own reading of text, which takes exponents.
    above, below = match_of(_FRACTION, inner).groups()
    return fractions.Fraction(int(above), int(below or 1))


def _raise_decimal(inner: Any) -> decimal.Decimal:
    # Of any precision: one that is more than the context has is not rounded.
    return decimal.Decimal(text_of(inner))


def _raise_complex(inner: Any) -> complex:
    real, imaginary = list_of(inner, 2)
    if type(real) is not float or type(imaginary) is not float:
        raise ValueError("it holds no floats")
    return complex(real, imaginary)


def _lower_clock(name: str, value: datetime.datetime | datetime.time) -> Tagged:
    """A zone travels by its name, else by its offset; a time of day has none in a zone that changes its clocks."""
    zone = getattr(value.tzinfo, "key", None)
    if zone:
        return Tagged(name, [value.isoformat(), zone, value.fold])
    if value.tzinfo is not None and value.utcoffset() is None:
        raise DoesNotTravel(f"a {name} in a zone without name and offset does not travel; use zoneinfo.ZoneInfo")
    return Tagged(name, value.isoformat())


def _raise_clock(kind: type[datetime.datetime | datetime.time], inner: Any) -> Any:
    if type(inner) is str:
        return kind.fromisoformat(inner)
    from zoneinfo import ZoneInfo

    text, zone, fold = list_of(inner, 3)
    found = ZoneInfo(match_of(_ZONE, zone)[0])
    return kind.fromisoformat(text_of(text)).replace(tzinfo=found, fold=integers_of([fold], 1)[0])


def _why_not(value: Any) -> str:
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}" if kind.__module__ != "builtins" else kind.__qualname__
    if callable(value):
        return f"{getattr(value, '__qualname__', name)} does not travel: code travels only as the function's own module"
    if hasattr(value, "fileno"):
        return f"{articled(name)} does not travel: it is open on this machine; pass what it holds"
    if hasattr(value, "__next__"):
        return f"{articled(name)} does not travel: it can be read only once, here; pass list(…)"
    return f"{articled(name)} does not travel; pass numbers, text, bytes, lists, dicts, dataclasses or numpy arrays"


_LOWER: Final[dict[type, Callable[[Any], Any]]] = {
    tuple: lambda value: Tagged("tuple", list(value)),
    set: lambda value: Tagged("set", list(value)),
    frozenset: lambda value: Tagged("frozenset", list(value)),
    dict: lambda value: Tagged("dict", [[key, item] for key, item in value.items()]),
    bytearray: lambda value: Tagged("bytearray", Buffer(memoryview(value))),
    memoryview: lambda value: Buffer(value.cast("B") if value.c_contiguous else memoryview(value.tobytes())),
    complex: lambda value: Tagged("complex", [value.real, value.imag]),
    datetime.datetime: lambda value: _lower_clock("datetime", value),
    datetime.date: lambda value: Tagged("date", value.isoformat()),
    datetime.time: lambda value: _lower_clock("time", value),
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
    "tuple": lambda inner: tuple(list_of(inner)),
    "set": lambda inner: set(list_of(inner)),
    "frozenset": lambda inner: frozenset(list_of(inner)),
    "dict": lambda inner: dict(list_of(pair, 2) for pair in list_of(inner)),
    "bytearray": _raise_bytearray,
    "complex": _raise_complex,
    "datetime": lambda inner: _raise_clock(datetime.datetime, inner),
    "date": lambda inner: datetime.date.fromisoformat(text_of(inner)),
    "time": lambda inner: _raise_clock(datetime.time, inner),
    "timedelta": lambda inner: datetime.timedelta(*integers_of(inner, 3)),
    "decimal": _raise_decimal,
    "fraction": _raise_fraction,
    "uuid": lambda inner: uuid.UUID(text_of(inner)),
    "path": lambda inner: pathlib.PurePath(text_of(inner)),
    "range": lambda inner: range(*integers_of(inner, 3)),
    "slice": lambda inner: slice(*list_of(inner, 3)),
    "ellipsis": lambda inner: Ellipsis,
    "scalar": raise_scalar,
    "structured": raise_structured,
    "empty-items": raise_empty_items,
    "keep": _raise_keep,
    "odd-str": _raise_odd_text,
    again.VIEW: raise_view,
}

#: What takes memory beside what was received.
_RAISE_BULKY: Final[dict[str, Callable[[Any, Callable[[int], None]], Any]]] = {
    "numbers": _raise_numbers,
    "packed": _raise_packed,
    "kept": _raise_kept,
}

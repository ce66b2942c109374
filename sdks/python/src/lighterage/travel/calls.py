"""A call of a function as bytes, and its reply: the contract `call` of bundles, shared by client and unit.

    client   write_call(args, kwargs) ──▶ frame, kind call  ─▶ answer(function, …)   unit
             read_reply(…)            ◀── frame, kind reply ◀─

A call's meta is `{"args": […], "kwargs": {…}}`, or the same written by another codec as a tagged buffer. A reply's is the
value, or tagged `raised` an exception. A reply is written by the codec of its call.

A class method's call names its class beside them, `"class": "module:Class"`: it becomes the first argument.

A call says beside that what packing of arrays pays for its reply: `"reply": {"rate": bytes a second, "methods": […]}`.

Several calls may travel as one: `{"each": [args, …], "kwargs": {…}}`, answered by a list that ends at the first exception.
"""

from __future__ import annotations

import importlib
import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..errors import DoesNotTravel, LighterageError
from . import codecs, frame, raised, same
from .classes import NO_CLASSES, Classes
from .frame import Piece, Tagged
from .kept import Missing
from .pack import Packer
from .values import BYTES_MAX, lower_with, raise_with

#: The type of the event that carries a call.
EVENT_TYPE: Final = "lighterage.call"
MEDIA_TYPE: Final = frame.MEDIA_TYPE
#: The attribute under which what decorates a function keeps it.
PLAIN: Final = "__lighterage_function__"
#: Bytes a second beyond which no rate is believed.
RATE_MAX: Final = 1e15
#: Levels that an argument or a result may nest, wherever it stands: beyond them is `DoesNotTravel`.
NESTING_MAX: Final = 120
#: What a reader of calls and replies accepts. The other side is the same program, so only memory bounds it. What stands
#: around an argument nests too.
LIMITS: Final = frame.Limits(
    total_bytes=4 << 30, meta_bytes=256 << 20, buffers=65_536, depth=frame.DEPTH_CEILING, values=same.VALUES_MAX
)


@dataclass(frozen=True)
class Packing:
    """What may make the arrays of a call, and of its reply, smaller."""

    up: Callable[[frame.Array], Any] | None
    down: Packer | None


@dataclass
class Call:
    """A call that was read."""

    args: list[Any]
    kwargs: dict[str, Any]
    codec: str = codecs.FRAME
    #: Whether `args` holds the arguments of several calls.
    is_each: bool = False
    #: What may make the arrays of the reply smaller.
    pack: Packer | None = None


@dataclass
class Answer:
    """What a unit sends back: the pieces of a frame, and the seconds of each stage."""

    pieces: list[Piece]
    decode: float
    run: float
    encode: float

    @property
    def timing(self) -> dict[str, float]:
        return {"decode": self.decode, "run": self.run, "encode": self.encode}


def write_call(
    args: tuple[Any, ...] | list[Any],
    kwargs: dict[str, Any],
    classes: Classes = NO_CLASSES,
    codec: str = codecs.FRAME,
    packing: Packing | None = None,
) -> list[Piece]:
    """The pieces of a call.

    Raises DoesNotTravel for an argument that has no meaning elsewhere.
    """
    own = list(args)
    body = {"args": own, "kwargs": dict(kwargs), **_without_class([own], classes)}
    found = same.find([*own, *kwargs.values()])
    return _write(_Body(body, 2, found), classes, codec, packing)


def write_calls(
    each: Sequence[Sequence[Any]],
    kwargs: dict[str, Any],
    classes: Classes = NO_CLASSES,
    codec: str = codecs.FRAME,
    packing: Packing | None = None,
) -> list[Piece]:
    """The pieces of several calls in one, answered by `read_outcomes`."""
    own: list[Any] = [list(args) for args in each]
    body = {"each": own, "kwargs": dict(kwargs), **_without_class(own, classes)}
    # Each call has its own arguments, as if it travelled alone; what is named is one for all of them.
    found, count = same.find(kwargs.values()), 0
    for index, args in enumerate(own):
        count += len(found.numbers)
        within = same.find(args, count)
        together = same.find([*args, *kwargs.values()])
        if together.count > within.count + found.count:
            raise DoesNotTravel("an object that is among the arguments and the named ones does not travel in `map`")
        if within:
            own[index] = same.Scope(args, within)
        count += len(within.numbers)
    is_scoped = any(type(args) is same.Scope for args in own)
    return _write(_Body(body, 3, found, is_scoped), classes, codec, packing)


def read_call(data: Piece, classes: Classes = NO_CLASSES) -> Call:
    """The call in these bytes; its arrays are views of them.

    Raises FrameError where they are no call, DoesNotTravel where an argument is of a class that is not known here.
    """
    found = _read(data, frame.CALL, classes)
    codec = codecs.FRAME
    if isinstance(found, _Coded):
        codec, found = found.codec, _decoded(found)
    if isinstance(found, dict) and isinstance(found.get("kwargs"), dict):
        for name in ("args", "each"):
            if isinstance(found.get(name), list):
                _with_class(found, found[name] if name == "each" else [found[name]], classes)
                return Call(found[name], found["kwargs"], codec, name == "each", _packer(found.get("reply")))
    raise frame.FrameError("kind", "a frame that is no call")


def _without_class(each: list[list[Any]], classes: Classes) -> dict[str, str]:
    """What a class method's call says beside its arguments: the class that each began with, which is taken from them.

    Only so, and never in a reply: what comes back from a unit is no code. Any other class does not travel.
    """
    kind = each[0][0] if each and each[0] else None
    if not (isinstance(kind, type) and classes.has(kind) and all(args and args[0] is kind for args in each)):
        return {}
    for args in each:
        del args[0]
    return {"class": classes.name_of(kind)}


def _with_class(body: dict[str, Any], each: list[Any], classes: Classes) -> None:
    if "class" not in body:
        return
    name = body["class"]
    if not isinstance(name, str) or not all(isinstance(args, list) for args in each):
        raise frame.FrameError("kind", "a call of a class method that names no class")
    kind = classes.find(name)
    for args in each:
        args.insert(0, kind)


def _packer(said: Any) -> Packer | None:
    if not isinstance(said, dict) or not isinstance(said.get("methods"), list):
        return None
    rate: Any = said.get("rate")
    known = tuple(method for method in said["methods"] if type(method) is str)
    return Packer(float(rate) if type(rate) in (int, float) and 0 < rate < RATE_MAX else None, known)


def write_reply(value: Any, classes: Classes = NO_CLASSES, call: Call | None = None) -> list[Piece]:
    """The pieces of a reply, written as its call was.

    Raises DoesNotTravel for a value that has no meaning elsewhere.
    """
    if call is not None and call.codec != codecs.FRAME:
        if same.find([value]):
            raise _lost(call.codec)
        value = _coded(call.codec, value)
    is_each = call is not None and call.is_each
    lower = lower_with(classes, call.pack if call is not None else None)
    if is_each and type(value) is list:
        scoped, count = [], 0
        for one in value:
            found = same.find([one], count)
            scoped.append(same.Scope(one, found) if found else one)
            count += len(found.numbers)
        is_scoped = any(type(one) is same.Scope for one in scoped)
        return _encode(_Body(scoped, 1, same.Sameness(), is_scoped), frame.REPLY, lower)
    return _encode(_Body(value, 0, same.find([value])), frame.REPLY, lower)


def write_raised(error: BaseException, classes: Classes = NO_CLASSES) -> list[Piece]:
    """The pieces of a reply that is an exception. Of one that is too much, what it says itself."""
    lower = lower_with(classes)
    try:
        return frame.encode(raised.lower(error, classes), kind=frame.REPLY, lower=lower)
    except (LighterageError, frame.FrameError, RecursionError):
        return frame.encode(raised.lower(error, classes, is_alone=True), kind=frame.REPLY, lower=lower)


@dataclass
class Outcome:
    """What a function did: it returned `value`, or raised `error`."""

    value: Any = None
    error: BaseException | None = None

    def get(self) -> Any:
        """The value; raises the error where there is one."""
        if self.error is not None:
            raise self.error
        return self.value


def read_outcome(data: Piece, classes: Classes = NO_CLASSES, bytes_max: int = BYTES_MAX) -> Outcome:
    """What a reply says. Its values may take `bytes_max` beside what was received.

    Raises FrameError where the bytes are no reply, DoesNotTravel where the result is of a class that is not known here,
    CallTooLarge where it takes more.
    """
    found = _read(data, frame.REPLY, classes, bytes_max)
    if isinstance(found, _Raised):
        return Outcome(error=_made(found, classes))
    if isinstance(found, _Coded):
        return Outcome(_decoded(found))
    return Outcome(found)


def read_outcomes(data: Piece, count: int, classes: Classes = NO_CLASSES, bytes_max: int = BYTES_MAX) -> list[Outcome]:
    """What a reply to `count` calls says: a value of each, or fewer that end with the first that raised.

    Raises FrameError where the bytes are no such reply; what was raised where nothing was run.
    """
    found = read_outcome(data, classes, bytes_max).get()
    if not isinstance(found, list):
        raise frame.FrameError("kind", "a reply to one call")
    outcomes = [Outcome(error=_made(one, classes)) if isinstance(one, _Raised) else Outcome(one) for one in found]
    ended = bool(outcomes) and outcomes[-1].error is not None
    if not (len(outcomes) == count or (ended and len(outcomes) < count)) or any(one.error is not None for one in outcomes[:-1]):
        raise frame.FrameError("kind", f"a reply of {len(outcomes)} results to {count} calls")
    return outcomes


def read_reply(data: Piece, classes: Classes = NO_CLASSES) -> Any:
    """The value that a function returned; raises what it raised."""
    return read_outcome(data, classes).get()


def answer(function: Callable[..., Any], data: Piece, classes: Classes = NO_CLASSES) -> Answer:
    """Handles a call in a unit: reads it, runs the function, writes its reply. What it raises is a reply too.

    Raises FrameError where the bytes are no call: then nothing was run. Raises MemoryError: it is the unit's, and another
    place may have more.
    """
    began = time.perf_counter()
    try:
        call = read_call(data, classes)
    except (frame.FrameError, MemoryError):
        raise
    except Exception as error:
        return Answer(write_raised(error, classes), time.perf_counter() - began, 0.0, 0.0)
    decoded = time.perf_counter()
    ran = None
    try:
        value = run_call(function, call, classes)
        ran = time.perf_counter()
        # What cannot be written is `DoesNotTravel`.
        pieces = write_reply(value, classes, call)
    except MemoryError:
        raise
    except BaseException as error:  # Also SystemExit: what ends a program ends the call.
        ran = ran or time.perf_counter()
        pieces = write_raised(error, classes)
    return Answer(pieces, decoded - began, ran - decoded, time.perf_counter() - ran)


def run(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What a function returns, a coroutine run to its end."""
    value = function(*args, **kwargs)
    if not inspect.iscoroutine(value):
        return value
    import asyncio

    return asyncio.run(value)


def run_call(function: Callable[..., Any], call: Call, classes: Classes = NO_CLASSES) -> Any:
    """What the function makes of a call; of several, a list of what it makes of each."""
    if not call.is_each:
        return run(function, call.args, call.kwargs)
    return _run_each(function, call, classes)


def _run_each(function: Callable[..., Any], call: Call, classes: Classes) -> list[Any]:
    values: list[Any] = []
    for args in call.args:
        try:
            values.append(run(function, args, call.kwargs))
        except MemoryError:
            raise
        except BaseException as error:  # As for one call.
            values.append(raised.lower(error, classes))
            break
    return values


def find(entry: str) -> Callable[..., Any]:
    """The function that a bundle's `entry` names, `module:function` or `module:Class.method`.

    Raises whatever the import of its module raises, and AttributeError where it is not there.
    """
    module_name, _, path = entry.partition(":")
    owner: Any = None
    found: Any = importlib.import_module(module_name)
    for part in path.split("."):
        owner, found = found, getattr(found, part)
    # What `@offload` made of it runs as the plain function does, without asking where. It may stand above or below
    # `@classmethod`, whose call brings the class along.
    raw = inspect.getattr_static(owner, path.rpartition(".")[2], found)
    raw = raw.__func__ if isinstance(raw, classmethod | staticmethod) else raw
    plain: Callable[..., Any] = getattr(raw, PLAIN, found)
    return plain


@dataclass
class _Body:
    """What a frame holds: the value, the arguments of which stand so many levels deep in it."""

    value: Any
    around: int
    #: What occurs more than once in it.
    found: same.Sameness
    #: Whether some of it tells sameness by itself.
    is_scoped: bool = False


def _write(body: _Body, classes: Classes, codec: str, packing: Packing | None) -> list[Piece]:
    """The pieces of a call."""
    if codec != codecs.FRAME:
        if body.found or body.is_scoped:
            raise _lost(codec)
        body.value = _coded(codec, body.value)
        return _encode(body, frame.CALL, lower_with(classes))
    if packing is not None and packing.down is not None:
        body.value["reply"] = packing.down.said
    return _encode(body, frame.CALL, lower_with(classes, packing.up if packing is not None else None))


def _encode(body: _Body, kind: int, lower: Callable[[Any], Any]) -> list[Piece]:
    """The pieces of a frame. What goes wrong, whatever it is, is the fault of a value: it has no meaning elsewhere."""
    depth_max = NESTING_MAX + body.around
    is_same = body.found or body.is_scoped
    writer = same.SameWriter(lower, depth_max, body.found) if is_same else frame.Writer(lower, depth_max)
    try:
        writer.value(body.value)
    except frame.FrameError as error:
        too_deep = f"it nests deeper than {NESTING_MAX} levels, or holds itself"
        raise DoesNotTravel(too_deep if error.word == "too-deep" else str(error)) from None
    except (LighterageError, MemoryError):
        raise
    except Exception as error:
        raise DoesNotTravel(f"a value cannot be written: {type(error).__name__}: {error}") from error
    _check_readable(writer)
    return frame.assemble(writer.meta, writer.buffers, kind=kind)


def _check_readable(writer: frame.Writer) -> None:
    """Says here what is too much for the other side to read: there it would be bytes that are broken."""
    if len(writer.buffers) > LIMITS.buffers:
        what = f"arrays and bytes longer than {frame.META_BYTES_EACH}"
        raise _too_much(len(writer.buffers), what, LIMITS.buffers, "join some of them")
    if writer.values > LIMITS.values:
        raise _too_much(writer.values, "values", LIMITS.values, "pass arrays")
    if len(writer.meta) > LIMITS.meta_bytes:
        raise _too_much(len(writer.meta), "bytes of text and numbers", LIMITS.meta_bytes, "pass arrays or bytes")


def _too_much(count: int, what: str, limit: int, instead: str) -> DoesNotTravel:
    return DoesNotTravel(f"{count} {what} do not travel together, the limit is {limit}; {instead}")


def _lost(codec: str) -> DoesNotTravel:
    return DoesNotTravel(f"an object that is there twice does not travel as {codec}; leave the codec at frame")


def _coded(codec: str, value: Any) -> Tagged:
    # As an array of bytes, which is not copied when it is read.
    try:
        written = codecs.write(codec, value)
    except (LighterageError, MemoryError, ImportError):
        raise
    except Exception as error:
        raise DoesNotTravel(f"a value cannot be written as {codec}: {type(error).__name__}: {error}") from error
    return Tagged(codec, np.frombuffer(written, np.uint8))


@dataclass
class _Coded:
    codec: str
    data: memoryview


@dataclass
class _Raised:
    inner: dict[str, Any]


def _read(data: Piece, kind: int, classes: Classes, bytes_max: int = BYTES_MAX) -> Any:
    plainly = raise_with(classes, bytes_max)

    def raise_(value: Any) -> Any:
        if isinstance(value, Tagged):
            if value.name == raised.TAG:
                return _Raised(value.value)
            if value.name in codecs.NAMES:
                return _Coded(value.name, memoryview(value.value))
        return plainly(value)

    try:
        found = frame.decode(data, LIMITS, raise_)
    except Missing:
        if kind == frame.CALL:
            raise
        raise frame.FrameError("value", "what only a unit keeps") from None
    except (frame.FrameError, LighterageError):
        raise
    except Exception as error:
        raise _unreadable(error) from None
    if found.kind != kind:
        raise frame.FrameError("kind", str(found.kind))
    return found.body


def _decoded(coded: _Coded) -> Any:
    try:
        return codecs.read(coded.codec, coded.data)
    except LighterageError:
        raise
    except Exception as error:
        raise _unreadable(error) from None


def _made(found: _Raised, classes: Classes) -> BaseException:
    try:
        return raised.make(found.inner, classes)
    except LighterageError:
        raise
    except Exception as error:
        raise _unreadable(error) from None


def _unreadable(error: Exception) -> frame.FrameError:
    """What a peer's bytes made go wrong here, whatever it is, is the fault of the bytes."""
    return frame.FrameError("value", f"{type(error).__name__}: {error}")

"""Exceptions that travel: raised in a unit, they arrive as themselves, with the remote traceback as their cause.

An exception is a class's name, arguments and attributes, its cause where the function named one (`raise … from`), and the
exceptions that a group holds. The other side makes it anew only where that runs no code of
the exception's own, neither now nor when it is forgotten: builtin classes, and classes without `__new__` and `__del__`
that one of the function's modules or another loaded module itself defines. Anything else arrives as a `RemoteError` that
says its name and words. So does what is no `Exception`: no node ends a program with SystemExit or KeyboardInterrupt.

    unit    except Exception as error: Tagged("raised", lower(error, classes))
    client  raise make(map, classes)
"""

from __future__ import annotations

import builtins
import os
import sys
import traceback
from typing import Any, Final

from ..errors import DoesNotTravel, RemoteError
from . import frame
from .classes import Classes, defined, has_hook
from .frame import Tagged
from .kept import Missing
from .values import lower_with

#: The tag of an exception in a reply.
TAG: Final = "raised"
#: Characters of a traceback; what is longer loses its middle.
TRACE_MAX: Final = 32_768
#: Bytes of the arguments and attributes together; what is longer is sent as the beginning of its text.
TEXT_MAX: Final = 4_096
#: Exceptions that one brings along, as causes and in groups. With more it comes without any.
TOGETHER_MAX: Final = 100
#: Levels that causes and groups nest.
LEVELS_MAX: Final = 16
#: Levels that stand around an exception's argument where it is written.
AROUND: Final = 8

# Python's own, past what a class may have in their place.
_ATTRIBUTES: Final[Any] = vars(BaseException)["__dict__"]
_ARGUMENTS: Final[Any] = vars(BaseException)["args"]
_CAUSE: Final[Any] = vars(BaseException)["__cause__"]

#: Groups of exceptions, which Python has since 3.11.
_GROUP: Final[Any] = vars(builtins).get("BaseExceptionGroup")
_HELD: Final[Any] = None if _GROUP is None else vars(_GROUP)["exceptions"]

#: What units raise that is this package's own, by its name on the wire: that stays when a file moves.
_OWN: Final[dict[str, type[Exception]]] = {"lighterage.kept:Missing": Missing}
_OWN_NAMES: Final = {kind: name for name, kind in _OWN.items()}

_OWN_FOLDER: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class RemoteTraceback(Exception):
    """Where an exception was raised on the other machine; the cause of the exception that arrives here."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


def lower(error: BaseException, classes: Classes, is_alone: bool = False) -> Tagged:
    """An exception as a value of the frame, with those it brings unless `is_alone`. What of it does not travel is sent as
    its text.
    """
    inner = None if is_alone else _described(error, classes, _Left(), 1)
    return Tagged(TAG, {**(inner or _alone(error, classes)), "traceback": trace(error)})


class _Left:
    """How many more exceptions may be brought along."""

    def __init__(self) -> None:
        self.count = TOGETHER_MAX

    def take(self) -> bool:
        self.count -= 1
        return self.count >= 0


def _alone(error: BaseException, classes: Classes) -> dict[str, Any]:
    kind = type(error)
    if getattr(builtins, kind.__name__, None) is kind:
        name = kind.__name__
    elif kind in _OWN_NAMES:
        name = _OWN_NAMES[kind]
    else:
        try:
            name = classes.name_of(kind)
        except DoesNotTravel:
            name = f"{kind.__module__}:{kind.__qualname__}"
    return {
        "class": name,
        "args": [_portable(argument, classes) for argument in error.args],
        "state": {
            key: _portable(value, classes)
            for key, value in getattr(error, "__dict__", {}).items()
            if isinstance(key, str) and key != "__notes__"
        },
        "notes": [str(note) for note in getattr(error, "__notes__", [])],
        "message": _message(error),
    }


def _described(error: BaseException, classes: Classes, left: _Left, level: int) -> dict[str, Any] | None:
    """An exception with its cause and what it holds; none where these are too many."""
    if not left.take() or level > LEVELS_MAX:
        return None
    inner = _alone(error, classes)
    if error.__cause__ is not None:
        inner["cause"] = _described(error.__cause__, classes, left, level + 1)
        if inner["cause"] is None:
            return None
    if _GROUP is not None and isinstance(error, _GROUP):
        inner["args"] = inner["args"][:1]
        inner["group"] = [_described(one, classes, left, level + 1) for one in _HELD.__get__(error)]
        if None in inner["group"]:
            return None
    return inner


def trace(error: BaseException) -> str:
    """The traceback as Python prints it, without the frames of this package."""
    whole = traceback.TracebackException.from_exception(error)
    _forget_own(whole)
    text = "".join(whole.format())
    if len(text) > TRACE_MAX:
        half = TRACE_MAX // 2
        text = f"{text[:half]}\n  ... {len(text) - TRACE_MAX} characters left out ...\n{text[-half:]}"
    return text.rstrip("\n")


def _forget_own(whole: traceback.TracebackException | None) -> None:
    while whole is not None:
        kept = [summary for summary in whole.stack if not summary.filename.startswith(_OWN_FOLDER)]
        whole.stack = traceback.StackSummary.from_list(kept)
        if whole.__context__ is not None and whole.__context__ is not whole.__cause__:
            _forget_own(whole.__context__)
        whole = whole.__cause__


def make(inner: Any, classes: Classes) -> BaseException:
    """The exception as itself where its class is known, else a `RemoteError`. The remote traceback is its cause, or that of
    the first of its causes.

    Raises DoesNotTravel where it is none.
    """
    error = first = _made(inner, classes, 1)
    while _CAUSE.__get__(first) is not None:
        first = _CAUSE.__get__(first)
    _CAUSE.__set__(first, RemoteTraceback(_part(inner, "traceback", str) if "traceback" in inner else ""))
    return error


def _made(inner: Any, classes: Classes, level: int) -> BaseException:
    if type(inner) is not dict or level > LEVELS_MAX:
        raise DoesNotTravel("the other side sent an exception that is none")
    name, arguments = _part(inner, "class", str), _part(inner, "args", list)
    kind = _class(name, classes)
    if kind is not None and _GROUP is not None and issubclass(kind, _GROUP):
        error = _build_group(kind, arguments, inner, classes, level) if "group" in inner else None
    else:
        error = None if kind is None else _build(kind, arguments)
    if error is None:
        message = _part(inner, "message", str) if "message" in inner else ""
        error = RemoteError(name.replace(":", "."), message)
    else:
        attributes = _ATTRIBUTES.__get__(error)
        for key, value in (_part(inner, "state", dict) if "state" in inner else {}).items():
            if type(key) is str and key.isidentifier() and not key.startswith("__"):
                attributes[key] = value
    notes = [note for note in _part(inner, "notes", list) if type(note) is str] if "notes" in inner else []
    if notes:
        _ATTRIBUTES.__get__(error)["__notes__"] = notes
    if "cause" in inner:
        _CAUSE.__set__(error, _made(inner["cause"], classes, level + 1))
    return error


def _build_group(
    kind: type[BaseException], arguments: list[Any], inner: dict[str, Any], classes: Classes, level: int
) -> BaseException | None:
    """A group of what was raised there. Whatever it was, here it is a group of `Exception`s."""
    held = [_made(one, classes, level + 1) for one in _part(inner, "group", list)]
    if not held or len(arguments) != 1 or type(arguments[0]) is not str:
        return None
    # Past its class: a method of the user's is run by nobody.
    made: BaseException = _GROUP.__new__(kind, arguments[0], held)
    return made


def _part(inner: dict[str, Any], name: str, kind: type) -> Any:
    found = inner.get(name)
    if type(found) is not kind:
        raise DoesNotTravel(f"the other side sent an exception whose {name} is none")
    return found


def _build(kind: type[BaseException], arguments: list[Any]) -> BaseException | None:
    """An exception of this class, unless Python's own code does not make it of these arguments."""
    is_builtin = vars(builtins).get(kind.__name__) is kind
    try:
        if is_builtin:
            return kind(*arguments)
    except Exception:  # It may be that only its __init__ wants others.
        pass
    # Not by its __init__, which may want other arguments than it hands on.
    try:
        error: BaseException = kind.__new__(kind, *arguments)
    except Exception:
        return None
    _ARGUMENTS.__set__(error, arguments)
    return error


def _class(name: str, classes: Classes) -> type[BaseException] | None:
    module_name, colon, path = name.partition(":")
    found: Any = None
    if not colon:
        found = vars(builtins).get(name)
    elif name in _OWN:
        found = _OWN[name]
    else:
        try:
            found = classes.find(name)
        except DoesNotTravel:
            found = defined(sys.modules.get(module_name), module_name, path)
    if found is _GROUP:
        # One that holds what is no `Exception` there. What arrives is one.
        found = vars(builtins)["ExceptionGroup"]
    if not isinstance(found, type) or has_hook(found, "__new__", "__del__"):
        return None
    return found if issubclass(found, Exception) else None


def _portable(value: Any, classes: Classes) -> Any:
    try:
        writer = frame.Writer(lower_with(classes))
        writer.value(value, AROUND)
        if len(writer.meta) + sum(data.nbytes for data in writer.buffers) <= TEXT_MAX:
            return value
    except Exception:  # Whatever it is that does not travel, its text does.
        pass
    try:
        return repr(value)[:TEXT_MAX]
    except Exception:
        return f"<{type(value).__qualname__}>"


def _message(error: BaseException) -> str:
    try:
        return str(error)[:TEXT_MAX]
    except Exception:
        return "<it has no text>"

"""Exceptions that travel: raised in a unit, they arrive as themselves, with the remote traceback as their cause.

An exception is a class's name, arguments and attributes. The other side makes it anew only where that runs no code of
the exception's own, neither now nor when it is forgotten: builtin classes, and classes without `__new__` and `__del__`
that one of the function's modules or another loaded module itself defines. Anything else arrives as a `RemoteError` that
says its name and words.

    unit    except Exception as error: Tagged("raised", lower(error, classes))
    client  raise make(map, classes)
"""

from __future__ import annotations

import builtins
import os
import sys
import traceback
from typing import Any, Final

from . import frame
from .errors import DoesNotTravel, RemoteError
from .frame import Tagged
from .travel import Classes, defined, has_hook, lower_with

#: The tag of an exception in a reply.
TAG: Final = "raised"
#: Characters of a traceback; what is longer loses its middle.
TRACE_MAX: Final = 32_768
#: Bytes of the arguments and attributes together; what is longer is sent as the beginning of its text.
TEXT_MAX: Final = 4_096

# Python's own, past what a class may have in their place.
_ATTRIBUTES: Final[Any] = vars(BaseException)["__dict__"]
_ARGUMENTS: Final[Any] = vars(BaseException)["args"]
_CAUSE: Final[Any] = vars(BaseException)["__cause__"]

_OWN_FOLDER: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep


class RemoteTraceback(Exception):
    """Where an exception was raised on the other machine; the cause of the exception that arrives here."""

    def __str__(self) -> str:
        return "\n" + str(self.args[0])


def lower(error: BaseException, classes: Classes) -> Tagged:
    """An exception as a value of the frame. What of it does not travel is sent as its text."""
    kind = type(error)
    if getattr(builtins, kind.__name__, None) is kind:
        name = kind.__name__
    else:
        try:
            name = classes.name_of(kind)
        except DoesNotTravel:
            name = f"{kind.__module__}:{kind.__qualname__}"
    return Tagged(
        TAG,
        {
            "class": name,
            "args": [_portable(argument, classes) for argument in error.args],
            "state": {
                key: _portable(value, classes)
                for key, value in getattr(error, "__dict__", {}).items()
                if isinstance(key, str) and key != "__notes__"
            },
            "notes": [str(note) for note in getattr(error, "__notes__", [])],
            "message": _message(error),
            "traceback": trace(error),
        },
    )


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
    """The exception as itself where its class is known, else a `RemoteError`; the remote traceback is its cause.

    Raises DoesNotTravel where it is none.
    """
    if type(inner) is not dict:
        raise DoesNotTravel("the other side sent an exception that is none")
    name, arguments = _part(inner, "class", str), _part(inner, "args", list)
    kind = _class(name, classes)
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
    _CAUSE.__set__(error, RemoteTraceback(_part(inner, "traceback", str) if "traceback" in inner else ""))
    return error


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
    else:
        try:
            found = classes.find(name)
        except DoesNotTravel:
            found = defined(sys.modules.get(module_name), module_name, path)
    if not isinstance(found, type) or has_hook(found, "__new__", "__del__"):
        return None
    return found if issubclass(found, Exception) else None


def _portable(value: Any, classes: Classes) -> Any:
    try:
        writer = frame.Writer(lower_with(classes))
        writer.value(value)
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

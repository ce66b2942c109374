"""Exceptions that travel: raised in a unit, they arrive as themselves, with the remote traceback as their cause.

An exception is a class's name, arguments and attributes. The other side makes it anew only where that runs no code of
the exception's own: builtin classes, those of the function's modules, and those that a loaded module already has.
Anything else arrives as a `RemoteError` that says its name and words.

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
from .travel import Classes, lower_with

#: The tag of an exception in a reply.
TAG: Final = "raised"
#: Characters of a traceback; what is longer loses its middle.
TRACE_MAX: Final = 32_768
#: Bytes of the arguments and attributes together; what is longer is sent as the beginning of its text.
TEXT_MAX: Final = 4_096

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


def make(inner: dict[str, Any], classes: Classes) -> BaseException:
    """The exception as itself where its class is known, else a `RemoteError`; the remote traceback is its cause."""
    name, arguments = str(inner["class"]), list(inner["args"])
    kind = _class(name, classes)
    error: BaseException
    if kind is None:
        error = RemoteError(name.replace(":", "."), str(inner.get("message", "")))
    else:
        error = _build(kind, arguments)
        for key, value in dict(inner.get("state") or {}).items():
            if key.isidentifier() and not key.startswith("__"):
                error.__dict__[key] = value
    if hasattr(error, "add_note"):
        for note in inner.get("notes") or ():
            error.add_note(str(note))
    error.__cause__ = RemoteTraceback(str(inner.get("traceback", "")))
    return error


def _build(kind: type[BaseException], arguments: list[Any]) -> BaseException:
    if kind.__module__ == "builtins":
        try:
            return kind(*arguments)
        except TypeError:
            pass
    # Not by its __init__, which may want other arguments than it hands on.
    error = kind.__new__(kind, *arguments)
    error.args = tuple(arguments)
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
            found = sys.modules.get(module_name)
            for part in path.split("."):
                found = None if found is None else vars(found).get(part)
            if not (isinstance(found, type) and _is_made_plainly(found)):
                found = None
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def _is_made_plainly(kind: type) -> bool:
    """Whether making one runs only what is built into Python."""
    return all(base.__module__ == "builtins" or "__new__" not in vars(base) for base in kind.__mro__)


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

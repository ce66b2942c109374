"""Classes that travel by name, and what is looked up of a class without running any of its code."""

from __future__ import annotations

import builtins
import dataclasses
import importlib
import sys
import types
import weakref
from collections.abc import Iterable
from typing import Any, Final

from ..errors import DoesNotTravel

# Looked up past what a class, or a module that is loaded when it is asked, would have run.
MEMBERS: Final[Any] = vars(type)["__dict__"]
_QUALNAME: Final[Any] = vars(type)["__qualname__"]
ORDER: Final[Any] = vars(type)["__mro__"]
_GLOBALS: Final[Any] = vars(types.ModuleType)["__dict__"]
_BUILTIN: Final = frozenset(one for one in vars(builtins).values() if isinstance(one, type))
#: Classes that were checked.
_plain: weakref.WeakSet[type] = weakref.WeakSet()


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


NO_CLASSES: Final = Classes()


def defined(module: Any, name: str, path: str) -> type | None:
    """The class that a module itself defines at this path; none for what it only imports. Runs nothing."""
    if not issubclass(type(module), types.ModuleType):
        return None
    members, found = _GLOBALS.__get__(module), None
    for part in path.split("."):
        found = members.get(part)
        if not issubclass(type(found), type):
            return None
        members = MEMBERS.__get__(found)
    same = found is not None and members.get("__module__") == name and _QUALNAME.__get__(found) == path
    return found if same else None


def has_hook(kind: type, *hooks: str) -> bool:
    """Whether one of these methods of a class is not Python's own. Runs nothing."""
    return any(base not in _BUILTIN and not MEMBERS.__get__(base).keys().isdisjoint(hooks) for base in ORDER.__get__(kind))


def check_plain(kind: type) -> None:
    """Checks that making an object of a class, setting its fields and forgetting it runs nothing of the class."""
    if kind in _plain:
        return
    if has_hook(kind, "__del__"):
        raise DoesNotTravel(f"an object of {kind.__qualname__} does not travel: its __del__ would be run on either side")
    layers = [MEMBERS.__get__(base) for base in ORDER.__get__(kind)]
    for field in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
        found = next((members[field.name] for members in layers if field.name in members), None)
        if type(found) is not types.MemberDescriptorType and hasattr(type(found), "__set__"):
            raise DoesNotTravel(
                f"an object of {kind.__qualname__} does not travel: its field {field.name} is a property, which runs code"
            )
    _plain.add(kind)


def articled(noun: str) -> str:
    """The noun with its article."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"

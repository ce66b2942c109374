"""Modules that have moved into a folder are still found where they were, as `lighterage.calls`.

It is one module with two names, loaded when one of them is asked for.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Final

_HOMES: Final = {
    "call": ("later", "measure", "options", "race"),
    "code": ("bundle",),
    "places": ("config", "node", "runtime", "session", "wire"),
    "travel": ("calls", "codecs", "frame", "kept", "pack", "raised", "same"),
}
_PACKAGE: Final = __name__.rpartition(".")[0]
#: Names by what they were.
MOVED: Final = {f"{_PACKAGE}.{name}": f"{_PACKAGE}.{home}.{name}" for home, names in _HOMES.items() for name in names}


class Finder(MetaPathFinder):
    """Asked for what nobody else finds."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, _AsItIs(), origin=MOVED[name]) if name in MOVED else None


class _AsItIs(Loader):
    """Loads a module where it is now."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(str(spec.origin))
        self._own: Any = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # It has been run, and goes by its own name.
        module.__spec__ = self._own


def install() -> None:
    """From now on they are found."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.append(Finder())

"""The Python that runs here, and what of a node's Python is other than a bundle needs."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .bundle import Bundle


def interpreter() -> dict[str, str]:
    """What a node compares with its own before it takes a bundle."""
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "numpy": np.__version__,
    }


def differences(bundle: Bundle, there: dict[str, str]) -> list[str]:
    """What of a node's Python, by what it says of it, is other than the bundle needs."""
    found, here = [], interpreter()
    if _minor(there.get("version", "")) != _minor(here["python"]):
        found.append(f"Python {there.get('version')} there, {here['python']} here")
    if bundle.has_lock:
        # What the lock names is what runs there.
        return found
    for package in bundle.requires:
        name, _, version = package.partition("==")
        theirs = there.get(name)
        if theirs is None and (name != "numpy" and len(there) > 3):
            found.append(f"{name} is not there, {version} is here: name it with lock=")
        elif theirs is not None and _major(theirs) != _major(version):
            found.append(f"{name} {theirs} there, {version} here")
    return found


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def _major(version: str) -> str:
    return version.partition(".")[0]

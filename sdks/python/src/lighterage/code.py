"""A function's code as it is put on nodes: its bundle, the limits of its units, and the name it is deployed under.

The name says the function and the hash of code and limits: two versions of one function live on a node side by side, and
a device that still runs the old one goes on calling it.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from . import bundle
from .bundle import Bundle
from .limits import Limits
from .travel import NO_CLASSES, Classes

#: Characters of the readable part of a name; a node takes 63 in all.
SLUG_MAX: Final = 30
#: Versions of one function that a deployment leaves on a node, its own among them.
VERSIONS_KEPT: Final = 4
#: Calls that a unit which keeps arrays serves, and milliseconds it waits for the next.
REUSE_CALLS: Final = 10_000
REUSE_IDLE_MS: Final = 600_000


@dataclass(frozen=True)
class Code:
    """What a node needs to run a function."""

    name: str
    #: What the names of all versions of the function begin with.
    family: str
    bundle: Bundle
    limits: Limits
    any_version: bool = False
    #: Whether its units serve many calls, and keep arrays from one to the next.
    keeps: bool = False

    @functools.cached_property
    def classes(self) -> Classes:
        return self.bundle.classes

    def manifest(self) -> bytes:
        """The deployment, as `POST /v1/deployments` takes it."""
        function: dict[str, Any] = {
            "image": self.bundle.sha256,
            "isolation": "process",
            "base": "python",
            "limits": self.limits.as_manifest(),
        }
        if self.keeps:
            function["units"] = {"reuse_calls": REUSE_CALLS, "reuse_idle_ms": REUSE_IDLE_MS}
        return json.dumps({"function": {self.name: function}}).encode()


@dataclass(frozen=True)
class Component:
    """A portable function that nodes have already, under this name: bytes in, bytes out, on a node or on a board."""

    name: str
    limits: Limits

    @property
    def classes(self) -> Classes:
        return NO_CLASSES


def make(
    function: Callable[..., Any], limits: Limits, lock: str | None = None, any_version: bool = False, keeps: bool = False
) -> Code:
    """The code of a function as it is now.

    Raises DoesNotTravel where it cannot be had.
    """
    made = bundle.make(function, lock)
    whole = f"{function.__module__}:{function.__qualname__}"
    slug = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in function.__qualname__.lower())
    family = f"py-{slug[:SLUG_MAX].strip('-') or 'f'}-{hashlib.sha256(whole.encode()).hexdigest()[:6]}-"
    version = hashlib.sha256(json.dumps([made.sha256, asdict(limits), keeps]).encode()).hexdigest()[:12]
    return Code(family + version, family, made, limits, any_version, keeps)

"""What a node is given of a function: its bundle with the limits of its units, or the name of a component it has already."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..limits import Limits
from ..travel.classes import NO_CLASSES, Classes

if TYPE_CHECKING:
    from .bundle import Bundle

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

"""A function's code as it is put on nodes: its bundle, the limits of its units, and the name it is deployed under.

The name says the function and the hash of code and limits: two versions of one function live on a node side by side, and
a device that still runs the old one goes on calling it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from . import bundle
from .bundle import Bundle
from .travel import Classes

#: Characters of the readable part of a name; a node takes 63 in all.
SLUG_MAX: Final = 30
#: Versions of one function that a deployment leaves on a node, its own among them.
VERSIONS_KEPT: Final = 4


@dataclass(frozen=True)
class Limits:
    """What one call on a node may use. The node says no by its own limits beyond these."""

    #: Wall time of one call there, in seconds.
    seconds: float = 300.0
    memory_bytes: int = 2 << 30
    #: Bytes of the arguments, and of the result.
    body_bytes: int = 512 << 20
    #: Calls of this function that one node runs at once, and that wait there.
    concurrency: int = 64
    waiting: int = 1_000

    def as_manifest(self) -> dict[str, int]:
        milliseconds = max(1, round(self.seconds * 1_000))
        return {
            "time_ms": milliseconds,
            # Threads of numerical libraries use several processors.
            "cpu_ms": min(milliseconds * 16, 86_400_000),
            "memory_bytes": self.memory_bytes,
            "body_bytes": self.body_bytes,
            "concurrency": self.concurrency,
            "waiting": self.waiting,
            "wait_ms": min(milliseconds, 3_600_000),
        }


@dataclass(frozen=True)
class Code:
    """What a node needs to run a function."""

    name: str
    #: What the names of all versions of the function begin with.
    family: str
    bundle: Bundle
    limits: Limits
    any_version: bool = False

    @property
    def classes(self) -> Classes:
        return self.bundle.classes

    def manifest(self) -> bytes:
        """The deployment, as `POST /v1/deployments` takes it."""
        function = {
            "image": self.bundle.sha256,
            "isolation": "process",
            "base": "python",
            "limits": self.limits.as_manifest(),
        }
        return json.dumps({"function": {self.name: function}}).encode()


def make(function: Callable[..., Any], limits: Limits, lock: str | None = None, any_version: bool = False) -> Code:
    """The code of a function as it is now.

    Raises DoesNotTravel where it cannot be had.
    """
    made = bundle.make(function, lock)
    whole = f"{function.__module__}:{function.__qualname__}"
    slug = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in function.__qualname__.lower())
    family = f"py-{slug[:SLUG_MAX].strip('-') or 'f'}-{hashlib.sha256(whole.encode()).hexdigest()[:6]}-"
    version = hashlib.sha256(json.dumps([made.sha256, asdict(limits)]).encode()).hexdigest()[:12]
    return Code(family + version, family, made, limits, any_version)

"""A function's code, made: its bundle, and a name that says the function and the hash of all there is.

Two versions of one function live on a node side by side, and a device that still runs the old one goes on calling it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from ..limits import Limits
from . import bundle
from .code import Code

#: Characters of the readable part of a name; a node takes 63 in all.
SLUG_MAX: Final = 30


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

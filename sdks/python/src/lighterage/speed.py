"""How fast this machine is: one small fixed piece of work, so that both sides of a call can be compared before it.

A node advertises the same figure, measured by its own base image. It says nothing of threads or vector units: it is where
estimates begin, and the first calls correct it.
"""

from __future__ import annotations

import functools
import time
from typing import Final

#: Seconds that the work takes on the reference machine, whose speed is 1.
REFERENCE_SECONDS: Final = 0.002
_STEPS: Final = 20_000
_TRIES: Final = 5


def work() -> int:
    """The work itself: plain Python, with integers."""
    total = 0
    for number in range(_STEPS):
        total += number * number
    return total


@functools.cache
def speed() -> float:
    """Times the reference machine's; measured once, which takes about ten milliseconds."""
    best = float("inf")
    for _ in range(_TRIES):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return REFERENCE_SECONDS / best

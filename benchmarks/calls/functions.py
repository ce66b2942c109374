"""What every contestant runs."""

from __future__ import annotations

from typing import Any

import numpy as np


def nothing() -> None:
    """Returns at once."""


def echo(array: Any) -> Any:
    """An array as large, made anew, so that nobody hands back what came."""
    return array + 1.0


def task(number: int) -> int:
    """A small task: about a millisecond of work would hide what is compared; this is microseconds."""
    return number * number


def product(n: int, times: int) -> float:
    """Seconds of the fastest of so many multiplications of n × n."""
    import time

    left, right = np.ones((n, n)), np.ones((n, n))
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        left @ right
        best = min(best, time.perf_counter() - began)
    return best

"""A small fixed benchmark: how fast is this machine, as one number that another machine can be compared with.

A node measures it once for its base and advertises it; a client measures its own. Their ratio is the first guess of
how much longer or shorter a function runs there, until calls have told better.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

import numpy as np

#: All turns count, not the fastest: a machine whose quota is small runs a short turn at full speed and then sleeps.
_TURNS: Final = 10
_LOOP: Final = 100_000
_SIDE: Final = 256


def speed() -> float:
    """The geometric mean of millions of loop turns a second and of 10⁹ floating point operations a second."""
    return math.sqrt(loop_mhz() * matrix_gflops())


def loop_mhz() -> float:
    """Millions of turns of a plain loop a second."""
    return _LOOP / _seconds(_turn_loop) / 1e6


def matrix_gflops() -> float:
    """10⁹ floating point operations a second of a matrix product."""
    matrix = np.ones((_SIDE, _SIDE))
    return 2 * _SIDE**3 / _seconds(lambda: matrix @ matrix) / 1e9


def _turn_loop() -> int:
    total = 0
    for turn in range(_LOOP):
        total += turn & 3
    return total


def _seconds(work: Callable[[], object]) -> float:
    """What one turn takes, once warm."""
    work()
    began = time.perf_counter()
    for _ in range(_TURNS):
        work()
    return (time.perf_counter() - began) / _TURNS

"""A small fixed benchmark: how fast is this machine, as one number that another machine can be compared with.

A node measures it once for its base and advertises it; a client measures its own. Their ratio is the first guess of
how much longer or shorter a function runs there, until calls have told better.
"""

from __future__ import annotations

import math
import time
from typing import Final

import numpy as np

#: Measured so often; the fastest counts, for that is what nothing disturbed.
_TURNS: Final = 5
_LOOP: Final = 100_000
_SIDE: Final = 256


def speed() -> float:
    """The geometric mean of millions of loop turns a second and of 10⁹ floating point operations a second."""
    return math.sqrt(loop_mhz() * matrix_gflops())


def loop_mhz() -> float:
    """Millions of turns of a plain loop a second."""
    return _LOOP / _fastest(_turn_loop) / 1e6


def matrix_gflops() -> float:
    """10⁹ floating point operations a second of a matrix product."""
    matrix = np.ones((_SIDE, _SIDE))
    return 2 * _SIDE**3 / _fastest(lambda: matrix @ matrix) / 1e9


def _turn_loop() -> int:
    total = 0
    for turn in range(_LOOP):
        total += turn & 3
    return total


def _fastest(work: object) -> float:
    assert callable(work)
    best = math.inf
    for _ in range(_TURNS):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best

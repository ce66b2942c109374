"""Draws the Mandelbrot set, its rows wherever they are done first: python mandelbrot.py [ROWS]

Without a node all of it is done here. With one (`LIGHTERAGE_NODES`, or `lighter up` on this machine) both work.
"""

import sys
import time

import numpy as np

import lighterage
from lighterage import offload

WIDTH = 1_200
STEPS = 300


@offload(pure=True)
def row(imaginary: float) -> np.ndarray:
    """The steps after which each point of a row is known to be outside."""
    point = np.linspace(-2.0, 0.6, WIDTH) + 1j * imaginary
    value, steps = np.zeros_like(point), np.zeros(WIDTH, np.int32)
    for _ in range(STEPS):
        inside = np.abs(value) <= 2.0
        value = np.where(inside, value * value + point, value)
        steps += inside
    return steps


def main(count: int) -> None:
    began = time.perf_counter()
    image = np.stack(list(lighterage.map(row, np.linspace(-1.2, 1.2, count).tolist())))
    took = time.perf_counter() - began
    print(f"{len(image)} rows in {took:.2f} s; {(image == STEPS).mean():.0%} of the points are inside")
    for stats in lighterage.stats():
        print(f"{stats.function}: {stats.calls}")
    for line in image[:: max(1, count // 12), :: WIDTH // 60]:
        print("".join(" .:-=+*#%@"[min(9, int(steps) * 10 // (STEPS + 1))] for steps in line))
    print(row.explain(0.0))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 240)

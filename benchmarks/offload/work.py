"""What is offloaded: the study's three operations on matrices, and work of other intensities."""

from __future__ import annotations

import hashlib
import json
import zlib
from typing import Any

import numpy as np

Matrix = np.ndarray[Any, np.dtype[np.float64]]


def inversion(matrix: Matrix) -> Matrix:
    return np.linalg.inv(matrix)


def logarithm(matrix: Matrix) -> Matrix:
    return np.log(matrix)


def multiplication(left: Matrix, right: Matrix) -> Matrix:
    """By numpy's own loops. An optimised BLAS is thirty times as fast: then no network of the study's would ever pay."""
    return np.einsum("ij,jk->ik", left, right, optimize=False)


def svd(matrix: Matrix) -> Matrix:
    return np.linalg.svd(matrix, compute_uv=False)


def queens(n: int) -> int:
    """Ways to put n queens on a board of n × n."""

    def place(row: int, columns: int, rising: int, falling: int) -> int:
        if row == n:
            return 1
        count, free = 0, ~(columns | rising | falling) & ((1 << n) - 1)
        while free:
            bit = free & -free
            free ^= bit
            count += place(row + 1, columns | bit, (rising | bit) << 1, (falling | bit) >> 1)
        return count

    return place(0, 0, 0, 0)


def hashing(data: bytes, rounds: int) -> bytes:
    digest = b""
    for _ in range(rounds):
        digest = hashlib.sha256(digest + data).digest()
    return digest


def mandelbrot(n: int) -> int:
    """A pure-Python kernel: points of an n × n grid that stay in the set."""
    inside = 0
    for row in range(n):
        for column in range(n):
            c = complex(-2 + 2.5 * column / n, -1.25 + 2.5 * row / n)
            z = 0j
            for _ in range(50):
                z = z * z + c
                if z.real * z.real + z.imag * z.imag > 4.0:
                    break
            else:
                inside += 1
    return inside


def faces(image: np.ndarray[Any, np.dtype[np.uint8]]) -> int:
    """Faces in a grey image, by the cascade that comes with scikit-image."""
    from skimage import data, feature

    cascade = feature.Cascade(data.lbp_frontal_face_cascade_filename())
    smallest, largest = image.shape[0] // 8, image.shape[0] // 2
    found = cascade.detect_multi_scale(image, 1.2, 1, (smallest, smallest), (largest, largest))
    return len(found)


def packing(data: bytes) -> bytes:
    return zlib.compress(data)


def parsing(text: str) -> int:
    """The sum of a list of numbers that is written as JSON."""
    return sum(json.loads(text))


def primes(n: int) -> int:
    """How many primes are below n, by division in Python."""
    found: list[int] = []
    for number in range(2, n):
        for prime in found:
            if prime * prime > number:
                found.append(number)
                break
            if not number % prime:
                break
        else:
            found.append(number)
    return len(found)


def spectrum(matrix: Matrix) -> float:
    """The strongest frequency of a picture of numbers."""
    return float(np.abs(np.fft.rfft2(matrix)).max())


def arguments(function: str, n: int, seed: int = 0) -> tuple[Any, ...]:
    """What the function is called with at this size."""
    random = np.random.default_rng([seed, n])
    if function == "multiplication":
        return random.random((n, n)), random.random((n, n))
    if function in ("inversion", "logarithm", "spectrum", "svd"):
        return (random.random((n, n)) + 0.5,)
    if function == "hashing":
        return random.bytes(n * 1_000), 20
    if function == "packing":
        return (random.integers(97, 105, n * 1_000, dtype=np.uint8).tobytes(),)
    if function == "parsing":
        # Numbers of eight digits, a comma and a space.
        return (json.dumps(random.integers(10_000_000, 100_000_000, n * 100).tolist()),)
    if function == "faces":
        return (_portrait(n),)
    return (n,)


def _portrait(n: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A grey picture of an astronaut, n × n: NASA's, which is in the public domain and comes with scikit-image."""
    from skimage import color, data, transform

    grey = transform.resize(color.rgb2gray(data.astronaut()), (n, n), anti_aliasing=True)
    return (grey * 255).astype(np.uint8)


#: The study's sweep.
OPERATIONS = ("inversion", "logarithm", "multiplication")
SIZES = (400, 500, 600, 700, 800, 900, 1_000, 1_100, 1_200)
RATES = (10, 20, 40, 60, 80, 100)
#: `kept` is the frame once the node's units have the right matrix: only the left one is sent.
CODECS = ("json", "ujson", "raw", "frame", "kept")
KEPT = "kept"

#: Work of other intensities, with sizes.
OTHERS = {
    "svd": (100, 200, 400),
    "queens": (7, 8, 9),
    "hashing": (100, 1_000, 4_000),
    "mandelbrot": (50, 100, 200),
    "faces": (120, 240, 480),
}

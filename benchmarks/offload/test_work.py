"""What is offloaded does what it says, at a size whose answer is known."""

import json
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

# The SDK's tests have a module of this name too: this one is found first here.
import work


def called(function, n):
    return getattr(work, function)(*work.arguments(function, n))


def test_the_work_is_what_it_says():
    assert [called("queens", n) for n in (5, 6, 8)] == [10, 4, 92]
    assert len(called("hashing", 3)) == 32 and called("hashing", 3) == called("hashing", 3)
    assert 0 < called("mandelbrot", 20) < 400
    (matrix,) = work.arguments("inversion", 8)
    assert np.allclose(work.inversion(matrix) @ matrix, np.eye(8))
    left, right = work.arguments("multiplication", 8)
    assert np.allclose(work.multiplication(left, right), left @ right)
    assert np.allclose(np.exp(called("logarithm", 8)), work.arguments("logarithm", 8)[0])
    assert zlib.decompress(called("packing", 2)) == work.arguments("packing", 2)[0]
    (text,) = work.arguments("parsing", 1)
    assert work.parsing(text) == sum(json.loads(text)) and len(text) == 1_000
    assert [called("primes", n) for n in (2, 3, 100)] == [0, 1, 25]
    assert np.isclose(called("spectrum", 8), work.arguments("spectrum", 8)[0].sum()), "of positive numbers that is their sum"
    assert np.allclose(called("svd", 8), np.linalg.svd(work.arguments("svd", 8)[0])[1])


def test_a_face_is_found_in_the_portrait():
    pytest.importorskip("skimage", reason="python-packages: a face in a picture")
    (picture,) = work.arguments("faces", 240)
    assert picture.shape == (240, 240) and picture.dtype == np.uint8
    assert called("faces", 240) >= 1
    assert work.faces(np.zeros((120, 120), np.uint8)) == 0

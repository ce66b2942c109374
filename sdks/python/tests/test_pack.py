"""Arrays are packed where that pays, arrive as they were, and cannot be made to grow without bound."""

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import work
from lighterage.errors import DoesNotTravel
from lighterage.places import runtime
from lighterage.travel import calls, frame, pack
from lighterage.travel.pack import Packer

SMOOTH = np.sin(np.linspace(0, 10, 100_000))
NOISE = np.random.default_rng(1).integers(0, 256, 800_000, np.uint8)


def sent(array, packer):
    pieces = calls.write_call([array], {}, packing=calls.Packing(packer, Packer(None)))
    (back,) = calls.read_call(bytearray(b"".join(pieces))).args
    assert back.dtype == array.dtype and back.shape == array.shape and back.tobytes() == array.tobytes()
    assert back.flags.f_contiguous == array.flags.f_contiguous
    return frame.total_bytes(pieces)


@pytest.mark.parametrize("methods", [("zlib",), ("zlib", "zstd")])
def test_what_is_smooth_is_packed_on_a_slow_network_only(methods):
    assert sent(SMOOTH, Packer(2e5, methods)) < 0.95 * SMOOTH.nbytes
    assert sent(np.zeros(100_000), Packer(1e6, methods)) < 10_000
    assert sent(SMOOTH, Packer(1e12, methods)) > SMOOTH.nbytes
    assert sent(NOISE, Packer(1e5, methods)) > NOISE.nbytes
    assert sent(np.zeros(1_000), Packer(1e5, methods)) > 8_000, "small arrays are left alone"


@settings(max_examples=40, deadline=None)
@given(
    hnp.arrays(hnp.scalar_dtypes().filter(lambda dtype: dtype.char not in "gG"), hnp.array_shapes(max_dims=3, max_side=8)),
    st.booleans(),
    st.sampled_from([("zlib",), ("zlib", "zstd")]),
)
def test_any_array_survives_it(array, turn, methods):
    repeats = pack.BYTES_MIN // max(array.nbytes, 1) + 1
    array = np.concatenate([array] * repeats)
    sent(np.asfortranarray(array) if turn else array, Packer(None, methods))


def test_no_call_waits_for_a_library(monkeypatch):
    begun = []
    monkeypatch.setattr(pack, "_library", False)
    monkeypatch.setattr(pack, "_is_loading", False)
    monkeypatch.setattr(pack, "background", begun.append)
    assert pack.methods() == pack.methods() == ("zlib",)
    (load,) = begun
    found = load()
    assert ("zstd" in pack.methods()) == (found is not None)


def test_a_reply_is_packed_as_its_call_says(client):
    before = runtime.current.stats_of("work:double").bytes_down
    array = np.zeros(100_000)
    result = work.double.with_options(compress=True).remote(array)
    assert (result == array).all()
    result += 1
    stats = runtime.current.stats_of("work:double")
    assert stats.bytes_down - before < 10_000 and stats.bytes_up < 10_000
    assert (work.double.with_options(compress=False).remote(array) == 0).all()
    assert runtime.current.stats_of("work:double").bytes_down > 800_000


def test_a_slow_network_packs_by_itself(node, network):
    import lighterage

    network.rate = 500_000
    lighterage.connect(network.url, node.token)
    array = np.arange(50_000.0)
    assert (work.double.remote(array) == 2 * array).all()
    assert runtime.current.stats_of("work:double").bytes_up < array.nbytes / 2


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        ["zlib", "f", "<", "C", 8, [10], "", 80, np.zeros(3, np.uint8)],
        ["zlib", "f", "<", "C", 8, [1_000_000], "", 80, b""],
        ["zlib", "f", "<", "C", 8, [-10, -1], "", 80, b""],
        ["zlib", "f", "<", "C", 7, [10], "", 70, b""],
        ["zlib", "O", "<", "C", 8, [10], "", 80, b""],
        ["lzma", "f", "<", "C", 8, [10], "", 80, b""],
        ["zstd", "f", "<", "C", 8, [10], "", 80, b"not zstd"],
        ["zlib", "f", "<", "C", 8, [1 << 40], "", 8 << 40, b""],
        ["zlib", "f", "<", "C", 8, [10], "", 80, np.frombuffer(zlib.compress(bytes(79)), np.uint8)],
    ],
)
def test_what_is_no_packed_array_says_so(wrong):
    with pytest.raises(DoesNotTravel):
        pack.unpack(wrong)


def test_a_bomb_gives_no_more_than_it_announced():
    bomb = np.frombuffer(zlib.compress(bytes(50_000_000)), np.uint8)
    array = pack.unpack(["zlib", "f", "<", "C", 8, [10], "", 80, bomb])
    assert array.data.nbytes == 80

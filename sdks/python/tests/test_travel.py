"""What travels arrives as it was, and what does not is refused with a reason."""

import datetime
import decimal
import enum
import fractions
import io
import math
import os
import pathlib
import time
import uuid
from collections import namedtuple
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from lighterage import travel
from lighterage.errors import DoesNotTravel
from lighterage.travel import frame

CLASSES = travel.Classes([__name__])


@dataclass
class Point:
    x: float
    y: float = 0.0
    tags: list = field(default_factory=list)


@dataclass(frozen=True)
class Frozen:
    values: tuple


class Colour(enum.Enum):
    RED = 1


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Bits(enum.IntFlag):
    ONE = 1
    TWO = 2


class Made(enum.Flag):
    A = 1
    B = 2

    @classmethod
    def _missing_(cls, value):
        return super()._missing_(value)


def test_members_of_a_flag_together_travel():
    for value in (Access.READ | Access.WRITE, Access.READ, Access(0), Bits.ONE | Bits.TWO, Bits(0), Bits(1) | 8, ~Bits.ONE):
        found = there_and_back(value)
        assert type(found) is type(value) and found == value, value
    with pytest.raises(DoesNotTravel, match="_missing_ of its own"):
        there_and_back(Made.A | Made.B)
    assert there_and_back(Made.A) is Made.A
    for inner in (["test_travel:Access", "1"], ["test_travel:Access", 64], ["test_travel:Colour", 1], ["test_travel:Made", 3]):
        data = bytearray(b"".join(frame.encode(frame.Tagged("flag", inner))))
        with pytest.raises(DoesNotTravel):
            frame.decode(data, raise_=travel.raise_with(CLASSES))


def test_long_doubles_travel_between_machines_that_have_the_same():
    for value in (
        np.arange(6, dtype=np.longdouble).reshape(2, 3) / 3,
        np.array([1 + 2j], np.clongdouble),
        np.longdouble(1) / 3,
        np.asfortranarray(np.ones((2, 3), np.longdouble)),
        np.zeros(2, [("a", np.longdouble), ("b", "i4")]),
        np.zeros(0, np.longdouble),
        np.arange(3, dtype=np.longdouble).astype(np.dtype(np.longdouble).newbyteorder()),
    ):
        found = there_and_back(value)
        assert type(found) is type(value) and found.dtype == value.dtype and np.array_equal(found, value)
    raw = np.zeros(1, f"V{np.dtype(np.longdouble).itemsize}")
    other = frame.Tagged("structured", [{"long": np.dtype(np.longdouble).str, "bits": 112}, raw])
    data = bytearray(b"".join(frame.encode(other, lower=travel.lower_with(CLASSES))))
    with pytest.raises(DoesNotTravel, match="long doubles are others"):
        frame.decode(data, raise_=travel.raise_with(CLASSES))


def test_messages_have_the_right_article():
    for word, said in (("enum", "an enum"), ("uuid", "a uuid|an uuid"), ("date", "a date")):
        data = bytearray(b"".join(frame.encode(frame.Tagged(word, None))))
        with pytest.raises(DoesNotTravel, match=f"sent ({said}) that is none"):
            frame.decode(data, raise_=travel.raise_with(CLASSES))


Pair = namedtuple("Pair", "left right")


def there_and_back(value):
    pieces = frame.encode(value, lower=travel.lower_with(CLASSES))
    data = bytearray(b"".join(pieces))
    return frame.decode(data, raise_=travel.raise_with(CLASSES)).body


def same(left, right):
    if isinstance(left, np.ndarray):
        if not (isinstance(right, np.ndarray) and left.dtype == right.dtype and left.shape == right.shape):
            return False
        return left.tobytes() == right.tobytes()
    return type(left) is type(right) and left == right


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -1, 2**63 - 1, 2**63, -(2**200), 1.5, math.inf, "", "Grüße", b"", b"x" * 5_000, bytearray(b"ab"),
        [], [1, [2]], (), (1, ("a",)), {"a": {"b": 1}}, {1: "a", (2, 3): "b"}, {1, 2}, frozenset({"x"}), 1 + 2j, range(3),
        slice(1, None), ..., datetime.datetime(2026, 11, 21, 7, 0, 1, 5), datetime.date(2026, 1, 2),
        datetime.datetime(2026, 11, 21, tzinfo=datetime.timezone.utc), datetime.time(1, 2), datetime.timedelta(-1, 5, 7),
        datetime.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin")), decimal.Decimal("1.10"),
        fractions.Fraction(1, 3), uuid.UUID(int=5), pathlib.PurePath("a/b"), Point(1.0, tags=["t"]), Frozen((1, 2)),
        Colour.RED, Pair(1, "r"), np.float32(1.5), np.int64(7), np.bool_(True), np.str_("x"), np.datetime64("2026-11-21"),
    ],
    ids=lambda value: repr(value)[:30],
)  # fmt: skip
def test_it_arrives_as_it_was(value):
    assert same(value, there_and_back(value))


class Swinging(datetime.tzinfo):
    """A zone with two times and no name, as packages have them."""

    def utcoffset(self, when):
        return None if when is None else datetime.timedelta(hours=1 + (4 <= when.month <= 9))


@pytest.mark.parametrize("zone", [ZoneInfo("Europe/Berlin"), ZoneInfo("UTC"), datetime.timezone.utc, None], ids=str)
def test_a_time_keeps_its_zone(zone):
    """In a zone that changes its clocks it has no offset, and its name was left out: it arrived without any zone."""
    for value in (datetime.time(2, 30, tzinfo=zone), datetime.datetime(2026, 10, 25, 2, 30, tzinfo=zone)):
        found = there_and_back(value)
        assert same(value, found) and found.tzinfo == zone
    if isinstance(zone, ZoneInfo):
        assert there_and_back(datetime.time(2, 30, fold=1, tzinfo=zone)).fold == 1


def test_a_zone_without_a_name_travels_by_its_offset_or_not_at_all():
    found = there_and_back(datetime.datetime(2026, 7, 1, tzinfo=Swinging()))
    assert found.utcoffset() == datetime.timedelta(hours=2)
    with pytest.raises(DoesNotTravel, match="a time in a zone without name and offset"):
        there_and_back(datetime.time(2, 30, tzinfo=Swinging()))


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(()), np.zeros((0, 3)), np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(20)[::3], np.arange(12).reshape(3, 4).T[1:], np.arange(4, dtype=">f8"), np.array([True, False]),
        np.array([1 + 2j], dtype=np.complex64), np.array([np.nan, -0.0, np.inf]), np.array(["a", "bcd"]), np.array([b"ab"]),
        np.array(["2026-11-21"], dtype="M8[25s]"), np.array([5], dtype="m8[ns]"), np.zeros(3, dtype="V5"),
        np.array([(1, 2.5, b"x")], dtype=[("a", "<i4"), ("b", ">f8"), ("c", "S3")]), np.zeros(2, dtype=[("v", "f4", (2, 2))]),
        np.array(["", ""], dtype="U0"), np.float16([1.5]),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)  # fmt: skip
def test_an_array_arrives_with_its_type_and_shape(array):
    back = there_and_back(array)
    assert same(array, back)
    if array.flags.f_contiguous and not array.flags.c_contiguous:
        assert back.flags.f_contiguous, "the layout is kept"


@given(hnp.arrays(hnp.scalar_dtypes().filter(lambda dtype: dtype.char not in "gG"), hnp.array_shapes(max_dims=4, max_side=4)))
def test_any_array_arrives(array):
    assert same(array, there_and_back(array))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(max_size=2_000),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
)


@given(VALUES)
def test_any_value_arrives(value):
    assert same(value, there_and_back(value))


@given(st.binary(max_size=300))
def test_no_bytes_do_more_than_fail(data):
    whole = bytearray(b"".join(frame.encode([1, "a", b"b", Point(1.0)], lower=travel.lower_with(CLASSES))))
    whole[64 : 64 + len(data)] = data
    for candidate in (data, bytes(whole)):
        with pytest.raises((frame.FrameError, DoesNotTravel)):
            frame.decode(candidate, raise_=travel.raise_with(CLASSES))
            raise frame.FrameError("it was sound after all")


def test_an_array_is_not_copied_on_the_way():
    array = np.arange(100_000.0)
    pieces = frame.encode([array], lower=travel.lower_with(CLASSES))
    assert np.shares_memory(np.frombuffer(pieces[-1], np.uint8), array)
    data = np.empty(frame.total_bytes(pieces), np.uint8)
    data[:] = np.frombuffer(b"".join(pieces), np.uint8)
    (back,) = frame.decode(data.data, raise_=travel.raise_with(CLASSES)).body
    assert np.shares_memory(back, data)
    assert back.flags.writeable


class Unknown:
    pass


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (io.StringIO(), "open on this machine"),
        (lambda: 1, "code travels only"),
        ((x for x in ()), "read only once"),
        (np.array([object()]), "array of objects"),
        (np.ma.array([1]), "np.asarray"),
        (Unknown(), "pass numbers"),
        (type("Text", (str,), {})("a"), "a kind of str"),
        (type("Both", (tuple,), {})((1, 2)), "Both, a kind of tuple"),
        (time.gmtime(0), "struct_time, a kind of tuple"),
        (os.stat("."), "stat_result, a kind of tuple"),
    ],
    ids=["file", "lambda", "generator", "objects", "masked", "unknown", "subclass", "tuple", "time", "stat"],
)
def test_what_does_not_travel_says_why(value, says):
    with pytest.raises(DoesNotTravel, match=says):
        there_and_back(value)


@pytest.mark.parametrize(
    "values",
    [
        [0.5] * 100, list(range(-100, 100)), [1, 2.0] * 50, [True] * 100, [2**63 - 1, -(2**63)] * 50, [2**63] * 100,
        [None] * 100, [[1.0] * 70] * 70, [math.inf, -0.0] * 50, [np.float64(1)] * 100,
    ],
)  # fmt: skip
def test_long_lists_arrive_as_they_were(values):
    back = there_and_back(values)
    assert back == values and list(map(type, back)) == list(map(type, values))
    assert math.copysign(1, there_and_back([-0.0] * 100)[7]) == -1


def test_a_long_list_of_numbers_takes_eight_bytes_each():
    pieces = frame.encode([0.5] * 100_000, lower=travel.lower_with(CLASSES))
    assert frame.total_bytes(pieces) < 800_300


def test_a_cycle_is_refused():
    cycle = []
    cycle.append(cycle)
    with pytest.raises(frame.FrameError, match="cycle"):
        there_and_back(cycle)


def test_only_classes_of_the_functions_modules_are_made():
    pieces = frame.encode(frame.Tagged("dataclass", ["subprocess:Popen", {}]))
    with pytest.raises(DoesNotTravel, match="do not define"):
        frame.decode(b"".join(pieces), raise_=travel.raise_with(CLASSES))

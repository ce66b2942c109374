"""What is one object here is one object there: a function that changes an argument answers as it does here."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from lighterage import here
from lighterage.errors import DoesNotTravel, LighterageError
from lighterage.travel import calls, frame, kept, same
from lighterage.travel.classes import Classes
from lighterage.travel.frame import Tagged

CLASSES = Classes([__name__])


@dataclass
class Box:
    items: list = field(default_factory=list)


@dataclass(eq=False)
class Node:
    next: object = None


@dataclass(unsafe_hash=True)
class Hashed:
    value: int = 0


def there(function, *args, codec="frame", packing=None, **kwargs):
    data = b"".join(calls.write_call(args, kwargs, CLASSES, codec, packing))
    answer = calls.answer(function, bytearray(data), CLASSES)
    return calls.read_reply(bytearray(b"".join(answer.pieces)), CLASSES)


def append(left, right):
    left.append(1)
    return len(right)


def raise_first(left, right):
    left[...] = 7
    return right.tolist()


@pytest.mark.parametrize("make", [list, bytearray])
def test_an_object_that_is_passed_twice_is_one(make):
    """`f(x, x)` got two lists, and answered 0."""
    value = make()
    assert there(append, value, value) == append(make(value), make(value)) + 1 == 1
    assert there(append, make(), make()) == 0
    assert there(lambda x, *, y: x is y, value, y=value) is True


def test_so_are_arrays_objects_dicts_and_sets():
    structured = np.zeros(2, [("a", "i4")])
    for value in (np.zeros(3), Box(), {}, {"a": [1]}, {1: 2}, set(), Node(), [1.5] * 100, np.zeros(0), structured):
        assert there(lambda x, y: x is y, value, value) is True, value
        assert there(lambda x: x[0] is x[1]["k"] is x[2][0], [value, {"k": value}, (value,)]) is True, value
    array = np.zeros(3)
    assert there(raise_first, array, array) == [7, 7, 7]


def test_what_holds_the_same_object_keeps_it():
    shared = [1]
    box = Box(shared)
    assert there(lambda b, s: b.items is s, box, shared) is True
    node = Node()
    assert there(lambda n: n.next[0] is n.next[1], Node((node, node))) is True
    pair = (shared, shared)
    assert there(lambda x, y: x[0] is x[1] is y[0], pair, pair) is True


def test_a_result_keeps_it_too():
    found = there(lambda: [Box()] * 3)
    assert found[0] is found[1] is found[2] and type(found[0]) is Box
    array = np.arange(4.0)
    found = there(lambda: (array, array[1:]))
    found[0][1] = 9
    assert found[1].tolist() == [9, 2, 3]


@pytest.mark.parametrize(
    "views",
    [
        lambda x: (x[:-1], x[1:]),
        lambda x: (x, x[3:5]),
        lambda x: (x, x[::-1]),
        lambda x: (x[::2], x[::4]),
        lambda x: (x, x.view(np.uint8)),
        lambda x: (x.reshape(4, 5), x.reshape(5, 4).T),
        lambda x: (x.reshape(4, 5)[:, :-1], x.reshape(4, 5)[:, 1:]),
        lambda x: (x, x.view("M8[s]")),
        lambda x: (x.view([("a", "f4"), ("b", "i4")]), x),
        lambda x: (x[2:3].reshape(()), x),
    ],
)
def test_views_of_one_memory_are_views_of_one_there(views):
    def change(left, right):
        left[...] = np.zeros(1, left.dtype)[0]
        return right.tobytes(), left.shape, right.strides, str(right.dtype)

    make = lambda: views(np.arange(1, 21, dtype=np.float64))  # noqa: E731
    assert there(change, *make()) == change(*make())


def test_parts_that_do_not_overlap_are_sent_alone():
    matrix = np.arange(20.0).reshape(4, 5)
    left, right = matrix[:, 0], matrix[:, 2]
    pieces = calls.write_call([left, right], {}, CLASSES)
    assert frame.total_bytes(pieces) < 500
    assert b"".join(pieces).find(np.float64(16.0).tobytes()) < 0, "what lies between them was not passed"
    assert there(lambda a, b: (a.tolist(), b.tolist()), left, right) == (left.tolist(), right.tolist())
    # Of two that do, what lies between is not sent either.
    secret = np.full(30, 42.0)
    secret[::3] = 1
    data = b"".join(calls.write_call([secret[::3], secret[::6]], {}, CLASSES))
    assert np.float64(42.0).tobytes() not in data


def test_what_cannot_be_one_there_does_not_travel():
    long = np.zeros(1_000_000)
    memory = bytearray(100)
    hashed = Hashed()
    for args in (
        (long[::100_000], long[::500_000]),
        (memory, np.frombuffer(memory, np.uint8)),
        (memory, memoryview(memory)),
        (long, memoryview(long)),
        (hashed, hashed),
    ):
        with pytest.raises(DoesNotTravel):
            calls.write_call(args, {}, CLASSES)
    for codec in ("json", "raw"):
        with pytest.raises(DoesNotTravel, match="twice"):
            there(append, [], [], codec=codec) or there(append, long, long, codec=codec)
        with pytest.raises(DoesNotTravel, match="twice"):
            there(lambda: [[]] * 2, codec=codec)
    assert there(lambda x, y: x == y, memoryview(b"abc"), memoryview(b"abc")) is True


def test_each_call_of_several_has_its_own():
    value = [0]
    data = b"".join(calls.write_calls([[value, value], [value, value], [[], []]], {}, CLASSES))
    pieces = calls.answer(append, bytearray(data), CLASSES).pieces
    outcomes = calls.read_outcomes(bytearray(b"".join(pieces)), 3, CLASSES)
    assert [outcome.get() for outcome in outcomes] == [2, 2, 0], "the second does not see what the first did"
    with pytest.raises(DoesNotTravel, match="named"):
        calls.write_calls([[value], [1]], {"y": value}, CLASSES)
    shared = []
    data = b"".join(calls.write_calls([[1], [2]], {}, CLASSES))
    pieces = calls.answer(lambda x: [shared, shared, x], bytearray(data), CLASSES).pieces
    for outcome in calls.read_outcomes(bytearray(b"".join(pieces)), 2, CLASSES):
        assert outcome.get()[0] is outcome.get()[1]


def test_a_unit_that_keeps_arrays_gets_one(monkeypatch):
    monkeypatch.setattr(here, "_inside_unit", True)
    known = kept.Known()
    large = np.arange(100_000.0)
    for _ in range(2):
        assert there(lambda x, y: x is y, large, large, packing=calls.Packing(kept.Keeper(known, None), None)) is True


def test_values_that_grow_by_sharing_end():
    lists, tuples = [], ()
    for _ in range(60):
        lists, tuples = [lists, lists], (tuples, tuples)
    for _ in range(35):
        lists = lists[0]
    assert there(lambda x: (x[0] is x[1], x[0][0] is x[1][1]), lists) == (True, True)
    with pytest.raises(DoesNotTravel):
        calls.write_call([tuples], {}, CLASSES)


@pytest.mark.parametrize(
    "value",
    [
        Tagged("again", 0),
        [Tagged("shared", [0, []]), Tagged("again", 1)],
        [Tagged("shared", [0, []]), Tagged("shared", [0, []])],
        Tagged("shared", [0, Tagged("again", 0)]),
        Tagged("shared", ["0", []]),
        Tagged("shared", [0, (1, 2)]),
        Tagged("shared", [0, "text"]),
        Tagged("shared", [0]),
        Tagged("again", []),
        Tagged("view", [np.zeros(8, np.uint8), "<f8", [2], [8], 0]),
        Tagged("view", [np.zeros(8, np.uint8), "<f8", [1], [8], 1]),
        Tagged("view", [np.zeros(8, np.uint8), "<f8", [1], [8], -8]),
        Tagged("view", [np.zeros(8, np.uint8), "|O", [1], [8], 0]),
        Tagged("view", [np.zeros(8, np.uint8), "<f8", [1, 1], [8], 0]),
        Tagged("view", [np.zeros(1), "<f8", [1], [8], 0]),
        Tagged("view", [np.zeros(8, np.uint8), "<f8", [1 << 40], [-8], 0]),
        Tagged("view", 1),
    ],
)
def test_what_is_none_of_it_is_refused(value):
    from lighterage.travel.values import lower_with

    data = bytearray(b"".join(frame.encode(value, kind=frame.REPLY, lower=lower_with(CLASSES))))
    with pytest.raises(LighterageError):
        calls.read_reply(data, CLASSES)


def test_a_call_without_any_pays_nothing():
    args = [np.zeros(10), 1, "x", [1.0] * 1000, {"a": 1}]
    assert not same.find(args)
    assert calls.write_call(args, {}, CLASSES) == calls.write_call(args, {}, CLASSES)

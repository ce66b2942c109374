"""A call there and back, as client and unit write it: values, exceptions, codecs, pieces that are not joined."""

import bisect
import builtins
import dataclasses
import json
import os
import pathlib
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from lighterage.errors import DoesNotTravel, RemoteError
from lighterage.travel import calls, codecs, frame, raised
from lighterage.travel.classes import Classes
from lighterage.travel.pack import Packer

CLASSES = Classes([__name__])
LIMITS = calls.LIMITS


class MoodError(Exception):
    def __init__(self, mood, level):
        super().__init__(mood)
        self.level = level


class OddError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def call(function, *args, codec="frame", **kwargs):
    data = b"".join(calls.write_call(args, kwargs, CLASSES, codec))
    answer = calls.answer(function, bytearray(data), CLASSES)
    assert min(answer.timing.values()) >= 0
    return calls.read_reply(bytearray(b"".join(answer.pieces)), CLASSES)


def raises(error):
    def function():
        raise error

    with pytest.raises(BaseException) as caught:
        call(function)
    return caught.value


def test_a_call_returns_what_the_function_returns():
    assert call(lambda a, *, b: [a, b], (1, "x"), b={2: 3}) == [(1, "x"), {2: 3}]


def test_a_coroutine_is_run():
    async def later(x):
        return x + 1

    assert call(later, 1) == 2


def test_exceptions_arrive_as_themselves():
    error = raises(ZeroDivisionError("division by zero"))
    assert type(error) is ZeroDivisionError and error.args == ("division by zero",)
    mood = raises(MoodError("grim", 3))
    assert (type(mood), mood.args, mood.level) == (MoodError, ("grim",), 3)
    assert type(raises(OSError(2, "missing", "a.txt"))) is FileNotFoundError
    assert str(raises(UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"))) == str(UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"))
    assert type(raises(KeyError(np.float64(2)))) is KeyError


def test_an_exception_of_a_package_that_is_loaded_here_is_known():
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        call(np.linalg.inv, np.zeros((2, 2)))
    with pytest.raises(TypeError):
        call(np.add, np.array(["a"]), 1)
    error = raises(json.JSONDecodeError("bad", "{", 1))
    assert type(error) is json.JSONDecodeError and error.pos == 1


def test_the_remote_traceback_is_the_cause_and_begins_in_the_function():
    error = raises(ValueError("no"))
    text = str(error.__cause__)
    assert isinstance(error.__cause__, raised.RemoteTraceback)
    assert "in function" in text and "/lighterage/" not in text and text.endswith("ValueError: no")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="other-python: notes came with Python 3.11")
def test_notes_travel():
    error = ValueError("no")
    error.add_note("a note")
    assert raises(error).__notes__ == ["a note"]


def test_an_exception_of_an_unknown_class_keeps_its_words():
    class LocalError(Exception):
        pass

    error = raises(LocalError("no"))
    assert type(error) is RemoteError
    assert str(error).endswith("LocalError: no [L8006]")


def test_what_is_no_exception_of_a_program_does_not_end_this_one():
    assert type(raises(SystemExit(3))) is RemoteError
    assert type(raises(KeyboardInterrupt())) is RemoteError


def test_arguments_that_do_not_travel_are_sent_as_text():
    error = raises(ValueError(sys, "x" * 100_000))
    assert error.args[0].startswith("<module 'sys'")
    assert len(error.args[1]) <= raised.TEXT_MAX
    assert type(raises(OddError())) is OddError


@pytest.mark.parametrize("name", ["os:system", "subprocess:Popen", "builtins:eval", "eval", "int", "SystemExit", "x:y.z", ""])
def test_no_name_makes_anything_but_an_exception(name):
    data = b"".join(frame.encode(frame.Tagged("raised", {"class": name, "args": ["true"]}), kind=frame.REPLY))
    with pytest.raises(RemoteError):
        calls.read_reply(data)


def test_a_result_that_does_not_travel_says_so():
    with pytest.raises(DoesNotTravel, match="read only once"):
        call(lambda: (x for x in ()))
    cycle = []
    cycle.append(cycle)
    with pytest.raises(DoesNotTravel, match="holds itself"):
        call(lambda: cycle)


def nested(levels):
    value = 7
    for _ in range(levels):
        value = [value]
    return value


def test_a_value_nests_as_deep_wherever_it_stands():
    """A result of 121 levels was a broken reply, of 129 an error without a type; as an argument either did not travel."""
    deepest = calls.NESTING_MAX - 1
    for levels in (deepest, deepest + 1, deepest + 2, 128, 129, 5_000):
        for attempt in (
            lambda value: call(len, value),
            lambda value: call(lambda: value),
            lambda value: call(lambda *, x: x, x=value),
            lambda value: calls.write_calls([[value], [1]], {}, CLASSES),
            lambda value: call(lambda: {"a": 1, "b": value}["b"]),
        ):
            if levels == deepest:
                attempt(nested(levels))
            else:
                with pytest.raises(DoesNotTravel, match="120 levels"):
                    attempt(nested(levels))


TWICE, SEEN = [1, 2], np.zeros(9)
HELD = {
    "numbers": [1, 2.5, None, True],
    "a long list of numbers": [0.5] * 100,
    "a long list": [1, "a"] * 50,
    "maps": {"a": {"b": [1]}},
    "odd text": {"a": [1, 2], "\udcff": {"b": 1}},
    "tags": {1: (2, {3}), (4,): 2**70},
    "buffers": [np.zeros(2), np.zeros(3), bytes(2_000), bytearray(9)],
    "one object twice": [TWICE, TWICE, {"again": TWICE}],
    "views": [SEEN[1:], SEEN[:-1]],
}
WAYS = {
    "call": lambda value: calls.write_call([value], {"x": 1}, CLASSES, packing=calls.Packing(None, Packer(1e6))),
    "calls": lambda value: calls.write_calls([[value], [value]], {"x": 1}, CLASSES),
    "reply": lambda value: calls.write_reply(value, CLASSES),
    "replies": lambda value: calls.write_reply([value, 1], CLASSES, calls.Call([], {}, is_each=True)),
}


@pytest.mark.parametrize("limit", ["values", "buffers", "meta_bytes"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("held", HELD)
def test_what_the_other_side_would_not_read_is_not_sent(monkeypatch, held, way, limit):
    """It was: of an argument the function's own exception came back, of a result a broken reply, call by call."""
    kind = frame.CALL if way.startswith("call") else frame.REPLY
    data = bytearray(b"".join(WAYS[way](HELD[held])))

    def is_read(most):
        monkeypatch.setattr(calls, "LIMITS", dataclasses.replace(LIMITS, **{limit: most}))
        try:
            calls._read(data, kind, CLASSES)
        except frame.FrameError:
            return False
        return True

    needed = bisect.bisect_left(range(10_000), True, key=is_read)
    assert is_read(needed) and WAYS[way](HELD[held])
    assert not is_read(needed - 1)
    with pytest.raises(DoesNotTravel, match=f"do not travel together, the limit is {needed - 1};"):
        WAYS[way](HELD[held])


def test_what_cannot_be_written_is_told_by_its_type():
    class Spiteful(dict):
        pass

    @dataclass
    class Odd:
        x: int

    changing = {}
    for value in (Spiteful(), Odd(1), {1: Odd}, changing.keys(), type):
        with pytest.raises(DoesNotTravel):
            calls.write_call([value], {}, CLASSES)
        with pytest.raises(DoesNotTravel):
            call(lambda value=value: value)


def test_odd_text_travels_as_it_is():
    """File names that are no UTF-8 have such text, and ended in a UnicodeEncodeError."""
    odd = os.fsdecode(b"caf\xe9")
    assert call(lambda x: x, odd) == odd
    assert call(lambda **names: names, **{odd: 1}) == {odd: 1}
    found = call(lambda x: x, {"plain": np.arange(3), odd: [odd, np.arange(4)]})
    assert list(found) == ["plain", odd] and found[odd][0] == odd and found[odd][1].tolist() == [0, 1, 2, 3]
    assert call(lambda x: x, pathlib.PurePath(odd)) == pathlib.PurePath(odd)
    assert call(lambda x: x, "\ud800\udc00") == "\ud800\udc00", "two halves are not joined"
    assert raises(ValueError(odd)).args == (odd,)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="other-python: groups of exceptions are new in Python 3.11")
def test_groups_of_exceptions_arrive_as_themselves():
    ExceptionGroup, BaseExceptionGroup = builtins.ExceptionGroup, builtins.BaseExceptionGroup  # noqa: N806
    inner = ExceptionGroup("inner", [MoodError("grim", 3), KeyError("k")])
    group = raises(ExceptionGroup("outer", [ValueError("x"), inner]))
    assert type(group) is ExceptionGroup and group.message == "outer"
    assert type(group.exceptions[0]) is ValueError and group.exceptions[1].exceptions[0].level == 3
    assert group.subgroup(KeyError) is not None
    assert isinstance(group.__cause__, raised.RemoteTraceback)
    mixed = raises(BaseExceptionGroup("mixed", [KeyboardInterrupt(), ValueError("x")]))
    assert type(mixed) is ExceptionGroup
    assert [type(one) for one in mixed.exceptions] == [RemoteError, ValueError]
    assert type(raises(ExceptionGroup("many", [ValueError(str(count)) for count in range(200)]))) is RemoteError
    deep = ValueError("deep")
    for _ in range(50):
        deep = ExceptionGroup("level", [deep])
    assert "ExceptionGroup" in str(raises(deep))


def test_a_cause_that_the_function_named_is_kept():
    first, second = KeyError("first"), MoodError("second", 2)
    second.__cause__ = first
    error = ValueError("third")
    error.__cause__ = second
    found = raises(error)
    assert type(found.__cause__) is MoodError and found.__cause__.level == 2
    assert type(found.__cause__.__cause__) is KeyError
    assert isinstance(found.__cause__.__cause__.__cause__, raised.RemoteTraceback)
    circle = ValueError("circle")
    circle.__cause__ = KeyError("other")
    circle.__cause__.__cause__ = circle
    assert type(raises(circle)) is ValueError


@pytest.mark.parametrize("ending", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_what_would_end_the_program_ends_the_call_alone(ending):
    error = raises(ending)
    assert type(error) is RemoteError and type(ending).__name__ in str(error)
    data = b"".join(calls.write_calls([[1], [2]], {}, CLASSES))

    def end(x):
        if x == 2:
            raise ending
        return x

    outcomes = calls.read_outcomes(bytearray(b"".join(calls.answer(end, bytearray(data), CLASSES).pieces)), 2, CLASSES)
    assert outcomes[0].value == 1 and type(outcomes[1].error) is RemoteError


def test_a_deep_argument_of_an_exception_does_not_keep_it_from_arriving():
    assert raises(ValueError(nested(110))).args == (nested(110),)
    found = raises(ValueError(nested(125)))
    assert type(found) is ValueError and found.args[0].startswith("[[[[")
    found = ValueError(nested(118))
    for _ in range(10):
        found, found.__cause__ = KeyError(1), found
    assert type(raises(found)) is KeyError


def test_bytes_that_are_no_call_run_nothing():
    ran = []
    for data in (b"", b"x" * 200, b"".join(calls.write_reply(1)), b"".join(frame.encode([1], kind=frame.CALL))):
        with pytest.raises(frame.FrameError):
            calls.answer(ran.append, data)
    assert not ran


@pytest.mark.parametrize("codec", ["json", "raw", "ujson"])
def test_a_codec_carries_arrays_and_what_json_can_say(codec):
    if codec == "ujson":
        pytest.importorskip("ujson", reason="python-packages: the codec ujson")
    arrays = [np.arange(6.0).reshape(2, 3), np.arange(3, dtype=np.int32), np.zeros((0, 2)), np.float32([1.5])]
    back = call(lambda values, *, name: [name, values, {"mean": values[0] / 3}], arrays, codec=codec, name="é")
    assert back[0] == "é"
    for sent, got in zip([*arrays, arrays[0] / 3], [*back[1], back[2]["mean"]], strict=True):
        assert got.dtype == sent.dtype and got.shape == sent.shape and (got == sent).all()
        got += 1


def test_a_codec_refuses_what_json_cannot_say():
    with pytest.raises(DoesNotTravel, match="leave the codec"):
        codecs.write("json", {1: 2})


def test_pieces_are_written_as_one_buffer_and_not_joined():
    array = np.arange(1_000.0)
    inner = calls.write_reply(array)
    pieces = frame.encode({"data": frame.Pieces(tuple(inner)), "timing": {"run": 0.5}}, kind=frame.REPLY, id=7)
    assert np.shares_memory(np.frombuffer(pieces[-1], np.uint8), array)
    body = frame.decode(b"".join(pieces)).body
    assert (calls.read_reply(body["data"].data) == array).all()
    summed = frame.encode(frame.Pieces((b"ab", b"cd")), checksum_buffers=True)
    assert frame.decode(b"".join(summed)).body == frame.Buffer(memoryview(b"abcd"))


def joined(pieces):
    return bytearray(b"".join(pieces))


class Counted:
    """A class whose method is called."""


@pytest.mark.parametrize("codec", ["frame", "json"])
def test_the_class_of_a_class_method_travels_by_name_in_a_call(codec):
    written = joined(calls.write_call((Counted, 3), {"x": 4}, CLASSES, codec))
    call = calls.read_call(written, CLASSES)
    assert (call.args, call.kwargs) == ([Counted, 3], {"x": 4})
    several = calls.read_call(joined(calls.write_calls([(Counted, 1), (Counted, 2)], {}, CLASSES, codec)), CLASSES)
    assert several.args == [[Counted, 1], [Counted, 2]] and several.is_each
    with pytest.raises(DoesNotTravel, match="int"):
        calls.write_call((int, 3), {}, CLASSES)
    with pytest.raises(DoesNotTravel, match="Counted"):
        calls.write_calls([(Counted, 1), (3, 2)], {}, CLASSES)


@pytest.mark.parametrize("name", [5, None, ["a"], f"{__name__}:nothing", "os:stat_result", f"{__name__}:_Hidden", ""])
def test_no_other_class_is_had_from_a_call(name):
    body = {"args": [1], "kwargs": {}, "class": name}
    with pytest.raises((frame.FrameError, DoesNotTravel)):
        calls.read_call(joined(frame.encode(body, kind=frame.CALL)), CLASSES)


def test_a_reply_brings_no_class():
    with pytest.raises(DoesNotTravel):
        calls.write_reply(Counted, CLASSES)

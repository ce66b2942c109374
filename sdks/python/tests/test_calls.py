"""A call there and back, as client and unit write it: values, exceptions, codecs, pieces that are not joined."""

import json
import sys

import numpy as np
import pytest

from lighterage import calls, codecs, frame, raised
from lighterage.errors import DoesNotTravel, RemoteError
from lighterage.travel import Classes

CLASSES = Classes([__name__])


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


@pytest.mark.skipif(sys.version_info < (3, 11), reason="notes came with Python 3.11")
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
    with pytest.raises(frame.FrameError, match="cycle"):
        call(lambda: cycle)


def test_bytes_that_are_no_call_run_nothing():
    ran = []
    for data in (b"", b"x" * 200, b"".join(calls.write_reply(1)), b"".join(frame.encode([1], kind=frame.CALL))):
        with pytest.raises(frame.FrameError):
            calls.answer(ran.append, data)
    assert not ran


@pytest.mark.parametrize("codec", ["json", "raw", "ujson"])
def test_a_codec_carries_arrays_and_what_json_can_say(codec):
    if codec == "ujson":
        pytest.importorskip("ujson")
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

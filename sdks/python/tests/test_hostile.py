"""What a peer says is not believed: nothing of it runs code, shows memory, fills it, or ends in anything but a typed error."""

import contextlib
import decimal
import fractions
import gc
import math
import time
import zlib

import numpy as np
import pytest

import lighterage
import vessel
import work
from lighterage import farm, here, travel
from lighterage.errors import CallTooLarge, DoesNotTravel, LighterageError, RemoteError, ReplyBroken
from lighterage.places import runtime
from lighterage.places.node import Node
from lighterage.places.wire import Api
from lighterage.travel import calls, frame, kept, pack
from lighterage.travel.frame import Tagged
from test_wire import Scripted, get

CLASSES = travel.Classes({"vessel": "app"})


@pytest.fixture(autouse=True)
def nothing_ran():
    vessel.ran.clear()
    yield
    gc.collect()
    assert vessel.ran == []


def replied(value, classes=CLASSES, **options):
    data = bytearray(b"".join(frame.encode(value, kind=frame.REPLY)))
    return calls.read_reply(data, classes, **options) if not options else calls.read_outcome(data, classes, **options).get()


def raised(name, *args, **parts):
    return Tagged("raised", {"class": name, "args": list(args), "message": "words", **parts})


# Classes


@pytest.mark.parametrize(
    "name",
    [
        "app:np.ndarray", "app:np.linalg.LinAlgError", "app:os.PathLike", "app:json.JSONDecodeError", "app:Resource",
        "app:JSONDecodeError", "app:vessel_library.Resource", "app:dataclass", "app:ran", "app:", "app:Cargo.", "app",
        "app:Cargo.__class__", "vessel:Cargo", "builtins:dict", "",
    ],
)  # fmt: skip
def test_only_a_class_that_the_module_itself_defines_is_found(name):
    with pytest.raises(DoesNotTravel):
        CLASSES.find(name)


def test_what_the_module_defines_is_found_where_it_is():
    assert CLASSES.find("app:Cargo") is vessel.Cargo
    assert CLASSES.find("app:Cargo.Label") is vessel.Cargo.Label
    assert replied(Tagged("dataclass", ["app:Cargo", {"weight": 3}])) == vessel.Cargo(3)
    assert replied(Tagged("dataclass", ["app:Slotted", {"value": 3}])) == vessel.Slotted(3)
    assert replied(Tagged("dataclass", ["app:Watched", {"value": 3}])).value == 3
    assert travel.Classes([vessel.__name__]).name_of(vessel.Cargo.Label) == "vessel:Cargo.Label"


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("app:Closing", {"path": "/"}),
        ("app:Resource", {"path": "/"}),
        ("app:vessel_library.Resource", {"path": "/"}),
        ("app:Inherits", {"path": "/", "more": 1}),
        ("app:Computed", {"value": 3}),
    ],
)
def test_no_class_is_made_that_would_run_something(name, fields):
    with pytest.raises(DoesNotTravel):
        replied(Tagged("dataclass", [name, fields]))


def test_what_would_not_be_made_there_is_not_sent():
    with pytest.raises(DoesNotTravel, match="__del__"):
        frame.encode(vessel.Closing("/"), lower=travel.lower_with(travel.Classes(["vessel"])))
    gc.collect()
    vessel.ran.clear()


# Exceptions


def test_an_exception_of_the_module_arrives_without_running_anything():
    with pytest.raises(vessel.TooHeavy, match="7 is too heavy") as caught:
        replied(raised("app:TooHeavy", "7 is too heavy", state={"weight": 7}))
    assert caught.value.weight == 7
    with pytest.raises(vessel.Guarded) as guarded:
        replied(raised("app:Guarded", 1, state={"x": 2}, notes=["n"], traceback="t"))
    assert guarded.value.__dict__["x"] == 2


@pytest.mark.parametrize(
    "name",
    ["app:MakesItself", "app:EndsItself", "vessel_library:LibraryError", "vessel:json.JSONDecodeError", "json:JSONDecodeError",
     "numpy:linalg.LinAlgError", "app:nope", "vessel:MakesItself", "ExceptionGroup", "UnicodeDecodeError"],
)  # fmt: skip
def test_any_other_exception_arrives_by_name(name):
    with pytest.raises((RemoteError, UnicodeDecodeError)):
        replied(raised(name, "a", 2))


@pytest.mark.parametrize(
    "inner",
    [
        {"class": "app:nope"}, {}, [], None, {"class": 3, "args": []}, {"class": "ValueError", "args": 3},
        {"class": "ValueError", "args": [], "state": []}, {"class": "ValueError", "args": [], "notes": 3},
        {"class": "KeyError", "args": [], "traceback": []},
        {"class": "KeyError", "args": [], "state": Tagged("dict", [[1, 2]])},
    ],
)  # fmt: skip
def test_an_exception_that_is_none_is_a_typed_error(inner):
    with pytest.raises((LighterageError, frame.FrameError, KeyError)) as caught:
        replied(Tagged("raised", inner))
    assert type(caught.value) is not KeyError or caught.value.args == ()


# Memory


@pytest.mark.parametrize("dtype", ["<f8", "|S16", "<U4", "|V64", "<M8[s]"])
def test_no_memory_is_shown_that_was_not_written(dtype):
    with pytest.raises(DoesNotTravel):
        replied(Tagged("empty-items", [dtype, [1 << 16]]))
    with pytest.raises(DoesNotTravel):
        calls.read_call(b"".join(frame.encode({"args": [Tagged("empty-items", [dtype, [9]])], "kwargs": {}})))


def test_items_of_no_bytes_travel():
    for dtype in ("<U0", "|S0", "|V0"):
        assert replied(Tagged("empty-items", [dtype, [3, 2]])).nbytes == 0
    fields = np.zeros(2, dtype=[("a", "V0")])
    data = b"".join(frame.encode(fields, lower=travel.lower_with(CLASSES)))
    back = frame.decode(data, raise_=travel.raise_with(CLASSES)).body
    assert back.dtype == fields.dtype and back.shape == (2,)


TWO_GIB = 2 << 30


@pytest.mark.parametrize(
    "value",
    [
        Tagged("fraction", "1e30000000"), Tagged("fraction", "1/0"), Tagged("fraction", "9" * 100_000), Tagged("fraction", 0.5),
        Tagged("int", "9" * 100_000), Tagged("int", 1.5), Tagged("int", " 1"), Tagged("decimal", 1), Tagged("decimal", "x"),
        Tagged("bytearray", TWO_GIB), Tagged("tuple", Tagged("range", [0, 1 << 60, 1])), Tagged("uuid", 1),
        Tagged("set", Tagged("range", [0, 1 << 60, 1])), Tagged("frozenset", "abc"), Tagged("dict", ["ab"]),
        Tagged("dict", Tagged("range", [0, 9, 1])), Tagged("range", [0, 1]), Tagged("range", [0, 1.0, 1]), Tagged("path", 3),
        Tagged("complex", ["1", "2"]), Tagged("timedelta", [1e300, 0, 0]), Tagged("timedelta", []), Tagged("datetime", "never"),
        Tagged("datetime", ["2026-01-01", "../../etc/passwd", 0]), Tagged("datetime", ["2026-01-01", "Europe", 0]),
        Tagged("datetime", ["2026-01-01", "UTC", 7]), Tagged("slice", []), Tagged("scalar", [1]), Tagged("numbers", [1]),
        Tagged("numbers", travel.lower_array(np.zeros(9, np.int8))),
        Tagged("structured", ["O", travel.lower_array(np.zeros(1))]),
        Tagged("structured", ["|O8", travel.lower_array(np.zeros(1, "V8"))]), Tagged("kept", "x"), Tagged("kept", []),
        Tagged("structured", [[[[]]], travel.lower_array(np.zeros(1, "V8"))]), Tagged("keep", ["x", 1]), Tagged("enum", []),
        Tagged("namedtuple", ["app:Cargo", [1]]), Tagged("packed", []), Tagged("json", 3), Tagged("raw", "x"),
        Tagged("nope", 1),
        frame.Array("M", "<", "C", 8, (1,), "nope", memoryview(bytes(8))),
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
def test_a_small_reply_that_lies_is_refused_at_once(value):
    began = time.monotonic()
    with pytest.raises((DoesNotTravel, frame.FrameError)):
        replied(value)
    assert time.monotonic() - began < 1


def test_numbers_of_any_size_travel():
    lower, raise_ = travel.lower_with(CLASSES), travel.raise_with(CLASSES)
    for value in (10**4_000, -(7**20_000), decimal.Decimal("1e-50"), fractions.Fraction(-7, 10**60), fractions.Fraction(4)):
        assert frame.decode(b"".join(frame.encode(value, lower=lower)), raise_=raise_).body == value
    with pytest.raises(DoesNotTravel, match="Fraction"):
        frame.encode(fractions.Fraction(1, 10**5_000), lower=lower)


def packed(size):
    data = np.frombuffer(zlib.compress(bytes(size)), np.uint8)
    return Tagged("packed", ["zlib", "u", "|", "C", 1, [size], "", size, travel.lower_array(data)])


def test_what_a_reply_unpacks_to_is_bounded_altogether():
    assert [one.size for one in replied([packed(1 << 20)] * 4, bytes_max=4 << 20)] == [1 << 20] * 4
    with pytest.raises(CallTooLarge):
        replied([packed(1 << 20)] * 5, bytes_max=4 << 20)
    with pytest.raises(DoesNotTravel):
        pack.unpack(["zlib", "u", "|", "C", 1, [8.0], "", 8.0, np.zeros(3, np.uint8)])


def test_one_buffer_is_not_copied_as_often_as_it_is_named():
    head = b"\x07" + (1_000).to_bytes(4, "little") + (b"\x0a" + bytes(4)) * 1_000
    table = frame._ENTRY.pack(1 << 12, 0, bytes(7))
    front = frame.HEADER_BYTES + len(table) + len(head)
    gap = -front % 64
    rest = table + head
    start = frame._HEADER_HEAD.pack(
        frame.MAGIC, 1, frame.REPLY, 0, front + gap + (1 << 12), 0, len(head), 1, zlib.crc32(rest), 0, bytes(20)
    )
    data = start + zlib.crc32(start).to_bytes(4, "little") + rest + bytes(gap) + bytes(1 << 12)
    assert len(calls.read_reply(data)) == 1_000
    with pytest.raises(CallTooLarge):
        calls.read_outcome(data, bytes_max=1 << 20)


def test_a_raw_reply_names_its_bytes_once():
    text = b'[{"array of": "<f8", "shape": [1], "items": [0, 8]}, {"array of": "<f8", "shape": [1], "items": [0, 8]}]'
    data = np.frombuffer(len(text).to_bytes(4, "little") + text + bytes(8), np.uint8)
    with pytest.raises(frame.FrameError):
        replied(Tagged("raw", travel.lower_array(data)))


@pytest.mark.parametrize(
    "text", [b"[" * 100_000, b"{", b'{"array of": "<f8"}', b'{"array of": "|O", "items": [], "shape": [0]}'], ids=range(4)
)
def test_json_that_is_none_is_a_typed_error(text):
    with pytest.raises((frame.FrameError, DoesNotTravel)):
        replied(Tagged("json", travel.lower_array(np.frombuffer(text, np.uint8))))
    with pytest.raises((frame.FrameError, DoesNotTravel)):
        calls.read_call(b"".join(frame.encode(Tagged("json", travel.lower_array(np.frombuffer(text, np.uint8))))))


def test_what_is_kept_cannot_be_changed_through_another_argument(monkeypatch):
    monkeypatch.setattr(here, "is_unit", lambda: True)
    monkeypatch.setattr(kept, "_store", type(kept._store)())
    received = np.arange(10.0)
    lowered = travel.lower_array(received)
    name = kept.name_of(lowered)
    given = kept.keep(name, received, lowered)
    given[:] = -1
    assert (kept.find(name) == np.arange(10.0)).all()


# Several calls as one


def outcomes(count, *values):
    lower = travel.lower_with(CLASSES)
    return calls.read_outcomes(b"".join(frame.encode(list(values), kind=frame.REPLY, lower=lower)), count, CLASSES)


def test_a_reply_to_several_calls_has_a_result_for_each_or_ends_with_an_error():
    error = raised("ValueError", "no")
    assert [one.value for one in outcomes(2, 1, 2)] == [1, 2]
    assert isinstance(outcomes(3, 1, error)[1].error, ValueError)
    assert isinstance(outcomes(2, 1, error)[1].error, ValueError)
    for wrong in ([], [1], [1, 2, 3], [error, 1], [error, error], [1, 2, 3, error]):
        with pytest.raises(frame.FrameError):
            outcomes(2, *wrong)


@pytest.mark.parametrize("values", [[], [7] * 60, [7]])
def test_map_does_not_take_what_it_did_not_ask_for(node, client, values):
    work.double.prepare()
    lying = b"".join(frame.encode(values, kind=frame.REPLY))

    def lie_once(handler, body):
        node.break_reply = None
        handler.send(200, lying, {"server-timing": "run;dur=nan"})

    node.break_reply = lie_once
    assert list(lighterage.map(work.double, range(5), chunk=5)) == [0, 2, 4, 6, 8]
    assert runtime.current.stats_of("work:double").failures.get(ReplyBroken.code, 0) >= 1


@pytest.mark.parametrize("duration", ["nan", "inf", "-5", "1e300", "0", "1e-320"])
def test_no_timing_of_a_node_stops_a_map(node, client, duration):
    function = work.double.with_options(local=False)
    list(lighterage.map(function, range(4)))
    node.break_reply = lambda handler, body: handler.send(200, body, {"server-timing": f"run;dur={duration}"})
    assert list(lighterage.map(function, range(300))) == [2 * x for x in range(300)]
    node.break_reply = None


def test_many_items_that_take_no_time_make_no_chunk_without_end():
    chunks = farm._Farm(work.double.function, farm._Items(iter(()), None, {}), None, False)
    chunks._shared.item_seconds = farm.ITEM_SECONDS_MIN
    assert chunks._chunk_size() == farm.CHUNK_MAX


# HTTP


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1;" + b"x" * 5_000], "line of more than"),
        ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"-1\r\n"], "broken chunk"),
        ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"0x1\r\nxAB"], "broken chunk"),
        ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\nxAB"], "broken chunk"),
        ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n" * 1_000], "after its last chunk"),
        ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n"], "more than its reply"),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" * 50], "again and again"),
        ("HTTP/1.1 ²²² OK\r\ncontent-length: 0\r\n\r\n".encode("latin-1"), "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1_0\r\n\r\n0123456789", "how long"),
    ],
)
def test_http_without_measure_is_no_reply(reply, says):
    with Scripted(reply) as server, pytest.raises(ReplyBroken, match=says):
        get(server)


def test_a_request_that_was_begun_is_not_sent_again():
    ok = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
    with Scripted(ok, b"HTTP/1.1 100 Continue\r\n\r\n", ok) as server:
        api = Api(server.url)
        api.request("GET", "/x", deadline=time.monotonic() + 3)
        server._replies.pop()
        with pytest.raises(ReplyBroken, match="broke off"):
            api.request("GET", "/x", deadline=time.monotonic() + 3)
    assert server.connections == 1


def test_trailers_are_read_and_the_connection_serves_the_next_request():
    first = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx: y\r\nz: w\r\n\r\n"
    with Scripted(first, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno") as server:
        api = Api(server.url)
        found = [bytes(api.request("GET", "/x", deadline=time.monotonic() + 3).body) for _ in range(2)]
    assert found == [b"ok", b"no"] and server.connections == 1


def test_only_times_that_can_be_are_kept():
    head = b"HTTP/1.1 200 OK\r\nserver-timing: a;dur=nan, b;dur=inf, c;dur=-1, d;dur=1e30, e;dur=5\r\ncontent-length: 0\r\n\r\n"
    with Scripted(head) as server:
        assert get(server).timing == {"e": 0.005}


# What a node says of itself


def json_reply(text):
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text)


@pytest.mark.parametrize(
    "said",
    [
        b"[]", b"3", b'{"cores": Infinity}', b'{"cores": "x"}', b'{"python": [1]}', b'{"python": {"speed": "nan"}}',
        b'{"python": {"packages": 3}}', b'{"isolation": 3}', b"[" * 100_000, b'{"cores": ' + b"9" * 10_000 + b"}",
    ],
    ids=lambda said: said[:30],
)  # fmt: skip
def test_a_node_that_says_nonsense_of_itself_is_broken(said):
    with Scripted(*[json_reply(said)] * 3) as server, contextlib.closing(a_node(server)) as node, pytest.raises(ReplyBroken):
        node.info()


def test_what_a_node_says_of_itself_is_kept_within_bounds():
    said = json_reply(b'{"cores": -99, "python": {"speed": "1e300", "version": "3"}}')
    with Scripted(*[said] * 3) as server, contextlib.closing(a_node(server)) as node:
        info = node.info()
    assert info.cores == 1 and math.isfinite(info.speed) and info.speed <= 1e6


@pytest.mark.parametrize("name", ["x\\r\\nhost: y", "é", "", 3, "a b"])
def test_no_name_of_a_board_adds_to_a_request(name):
    text = f'[{{"name": {name if name == 3 else chr(34) + name + chr(34)}, "state": "attested"}}]'.encode()
    with Scripted(json_reply(text)) as server, contextlib.closing(a_node(server)) as node, pytest.raises(ReplyBroken):
        node.boards()


def a_node(server):
    from lighterage.places.config import Address

    return Node(Address(server.url, "lighter_t"))

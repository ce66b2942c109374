"""What the comparison rests on: that all peers run the same functions, and that the glue speaks as its servers do."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "functions")]

import glue  # noqa: E402
import latency  # noqa: E402
import ours  # noqa: E402
import workloads  # noqa: E402
from webhook import Poster, Webhook  # noqa: E402

import plots  # noqa: E402
import work  # noqa: E402
from shared.mqtt import packet  # noqa: E402
from shared.node import machines_mb  # noqa: E402
from shared.spread import Spread  # noqa: E402


def _asked() -> list[dict[str, object]]:
    """Each workload's event, to a state that is not there and to the one after it; then what follows in its queues."""
    asked: list[dict[str, object]] = []
    for one, (name, filter_) in zip(workloads.ALL, workloads.STEPS.items(), strict=True):
        topic = one.topic.format("d1x")
        assert glue._matches(topic, filter_), name
        event = {"topic": topic, "data": one.payload("d1x")}
        first = {"function": name, "event": event, "state": None}
        answer = work.answer(first)
        asked += [first, {**first, "state": answer["state"]}]
        for queue, key, data in answer["out"]:
            if queue in workloads.HANDLED:
                asked.append({"function": workloads.HANDLED[queue], "event": {"topic": key, "data": data}, "state": None})
    return asked


def test_what_every_peer_runs_says_the_same_in_python_and_in_javascript() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("skipped: npm: node is not installed")
    script = (
        f"const {{ answer }} = await import({json.dumps((HERE / 'functions/work.js').as_uri())});"
        f"for (const given of {json.dumps(_asked())})"
        " console.log(await (await answer({ json: async () => given })).text());"
    )
    said = subprocess.run(
        [node, "--input-type=module", "-e", script], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len(said) == len(_asked()) > 12
    for given, line in zip(_asked(), said, strict=True):
        theirs, python = json.loads(line), json.loads(json.dumps(work.answer(given)))
        assert theirs["state"] == python["state"], given
        for (*one, data), (*other, expected) in zip(theirs["out"], python["out"], strict=True):
            assert one == other, given
            assert _value(data) == _value(expected), given


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def test_every_result_leaves_where_the_sink_hears_it() -> None:
    for given in _asked():
        for queue, _, _ in work.answer(given)["out"]:
            assert queue in {**workloads.HANDLED, **workloads.TOPICS} or queue in workloads.WEBHOOKS
    for one in workloads.ALL:
        assert one.result is None or any(glue._matches(topic.format("d1x"), one.result) for topic in workloads.TOPICS.values())


def test_who_waits_for_a_result_hears_that_its_worker_has_ended() -> None:
    sink = workloads.Sink()
    sink.hear("home/d1x/bulb", b"on", 1.0)
    sink.fail("the worker of motion has ended")
    assert sink.wait(["d1x"]) == [1.0]
    with pytest.raises(TimeoutError, match="1 of 2 events were not through: the worker of motion has ended"):
        sink.wait(["d1x", "d2x"])
    sink.webhook.close()


def test_a_pattern_that_fails_is_left_out_and_those_before_it_stay() -> None:
    def lost(*_: object) -> list[float]:
        raise TimeoutError("1 of 1 events were not through")

    lights, health, *_ = workloads.ALL
    platform = latency.Platform("one", contextlib.nullcontext())
    platform.take(latency.ALONE, lights, lambda *_: [1.0])
    platform.take(latency.ALONE, lights, lambda *_: [2.0])
    platform.take(latency.AFTER_IDLE, lights, lambda *_: [3.0])
    platform.take(latency.AFTER_IDLE, health, lost)
    platform.take(latency.AFTER_IDLE, lights, lambda *_: [4.0])
    assert platform.took == {latency.ALONE: {"lights": [1.0, 2.0]}}
    assert platform.is_measured and "health" in platform.failure


def test_platforms_take_turns_there_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "ALL", workloads.ALL[:1])
    monkeypatch.setattr(latency, "REST_SECONDS", 0.0)
    order: list[str] = []

    def send(on: latency.Platform, _: workloads.Workload) -> list[float]:
        order.append(on.name)
        return [1.0]

    all_ = [latency.Platform(name, contextlib.nullcontext()) for name in "abc"]
    for number in range(3):
        latency._round(all_, number, latency.ALONE, send)
    assert "".join(order) == "abccbaabc"


def test_a_connection_that_its_server_has_closed_is_made_again() -> None:
    heard: list[bytes] = []
    webhook = Webhook(lambda body, _: heard.append(body))
    poster = Poster(webhook.address)
    assert poster.post(b"1") == b"ok"
    poster._connection.sock.shutdown(socket.SHUT_RDWR)
    assert poster.post(b"2") == b"ok"
    assert heard == [b"1", b"2"]
    poster.close()
    webhook.close()


def test_an_example_becomes_one_of_another_class(tmp_path: Path) -> None:
    for one in workloads.ALL:
        for class_ in ours.CLASSES:
            text = (ours.project(tmp_path, one.name, class_) / "lighter.toml").read_text()
            assert "build =" not in text
            assert (class_ == "wasm") == ("isolation" not in text)
            if class_ == "process":
                assert ".wasm" not in text and "function.record" not in text


def test_lengths_and_quantiles_are_those_of_the_books() -> None:
    assert packet(0x30, b"x" * 127)[:2] == b"\x30\x7f"
    assert packet(0x30, b"x" * 128)[:3] == b"\x30\x80\x01"
    spread = Spread.of([float(value) for value in range(1, 101)])
    assert (spread.p50, spread.p90, spread.p99, spread.mean) == (50.0, 90.0, 99.0, 50.5)


def test_the_pictures_read_what_was_printed() -> None:
    text = """one at a time: from the publish to the sink, in ms
workload   platform                            mean       p50       p90       p99 deviation events
lights     container, paused when idle         2.96      2.95      3.14      3.46      0.19     20
co2        workerd                             6.12      5.80      7.11      8.83      0.96     20

bursts of 100: from the publish to the sink, in ms
"""
    assert plots.table(text, plots.ALONE) == [
        plots.Row("lights container, paused when idle", 2.95, 3.14),
        plots.Row("co2 workerd", 5.8, 7.11),
    ]


def test_a_machine_has_what_it_wrote_of_its_snapshot_and_behind_it() -> None:
    """Each map is a head and fields; the snapshot's own map, and what lies elsewhere, is no machine's."""
    maps = [
        ("7f0000000000-7f0000400000 rw-p 00000000 00:01 9 /memfd:lighter-snapshot (deleted)", 120),
        ("7f0000400000-7f0006000000 rw-p 00000000 00:00 0", 80),
        ("7f0006000000-7f0007000000 rw-p 00000000 00:00 0 [stack]", 5),
        ("7f0007000000-7f0007400000 rw-p 00000000 00:01 9 /memfd:lighter-snapshot (deleted)", 40),
        ("7f0008000000-7f0009000000 rw-p 00000000 00:00 0", 7_000),
    ]
    smaps = "".join(f"{head} \nSize: 4 kB\nAnonymous:  {kb} kB\nVmFlags: rd wr mr \n" for head, kb in maps)
    assert machines_mb(smaps) == [0.2, 0.04]

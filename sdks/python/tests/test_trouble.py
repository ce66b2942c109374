"""Whatever goes wrong between here and a node ends in the right result or in one typed error, and leaves nothing behind."""

import gc
import os
import socket
import threading
import time

import numpy as np
import pytest

import lighterage
import work
from lighterage import (
    CallTooLarge,
    DoesNotTravel,
    NodeRefused,
    NodeUnreachable,
    ReplyBroken,
    TimeIsUp,
    VersionsDiffer,
    offload,
    runtime,
)
from lighterage.call import function
from lighterage.errors import LighterageError
from lighterage.places import node as node_module

# Nothing that packing would make smaller.
BIG = np.frombuffer(np.random.default_rng(1).bytes(4_000_000), np.int64)


def prefers(client, function):
    """The estimates of a device that had better hand everything on."""
    function.prepare()
    for size in (128, 192, 1e4, 1e6, 4e6):
        for _ in range(3):
            runtime.current.engine.observe_local(f"work:{function.__name__}", size, 30.0)


@pytest.fixture
def far(node, network):
    """The node behind a network that can be made bad."""
    return lighterage.connect(network.url, node.token)


def failures(function):
    return runtime.current.stats_of(f"work:{function}").failures


def test_a_node_that_is_gone_is_an_error_or_a_local_call(network, far):
    prefers(far, work.where)
    assert work.where() != os.getpid()
    network.refuses = True
    network.cut()
    with pytest.raises((NodeUnreachable, ReplyBroken)):
        work.where.remote()
    assert work.where() == os.getpid()
    began = time.monotonic()
    assert work.where() == os.getpid(), "it is left alone now"
    assert time.monotonic() - began < 0.1
    network.refuses = False
    deadline = time.monotonic() + 10
    while not runtime.current.usable(None, time.monotonic()):
        assert time.monotonic() < deadline, "it is asked in the background whether it is back"
        time.sleep(0.05)
    assert work.where.remote() != os.getpid()


def test_a_node_that_was_never_there_is_no_node():
    free = socket.create_server(("127.0.0.1", 0))
    port = free.getsockname()[1]
    free.close()
    with pytest.raises(NodeUnreachable, match=str(port)) as caught:
        lighterage.connect(f"http://127.0.0.1:{port}", "lighter_x")
    assert caught.value.code == "L1102"
    assert lighterage.nodes() == []


@pytest.mark.parametrize("after", [0, 10, 200, 100_000])
def test_a_reply_that_breaks_off(network, far, after):
    prefers(far, work.echo)
    network.cut()
    network.cut_down = after
    with pytest.raises((ReplyBroken, NodeUnreachable)):
        work.echo.remote(BIG)
    runtime.current.disconnect()


def test_a_reply_that_breaks_off_is_made_up_for_here(network, far):
    prefers(far, work.echo)
    network.cut()
    network.cut_down = 100_000
    assert (work.echo(BIG) == BIG).all()
    assert failures("echo") == {"L8002": 1}


def test_a_request_that_is_cut_off(network, far):
    prefers(far, work.echo)
    network.cut()
    network.cut_up = 1_000_000
    assert (work.echo(BIG) == BIG).all()
    assert sum(failures("echo").values()) == 1


def test_a_reply_with_a_changed_byte(node, client):
    work.echo.prepare()

    def change(handler, body):
        body = bytearray(body)
        body[70] ^= 0xFF
        handler.send(200, bytes(body))

    node.break_reply = change
    with pytest.raises(ReplyBroken, match="checksum"):
        work.echo.remote([1, "a"])
    for wrong in (b"", b"not a frame", b"\x8cLFR" + bytes(100)):
        node.break_reply = lambda handler, body, wrong=wrong: handler.send(200, wrong)
        with pytest.raises(ReplyBroken):
            work.echo.remote(1)


def test_what_does_not_speak_http(node, client):
    work.echo.prepare()

    def babble(handler, body):
        handler.wfile.write(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")
        handler.close_connection = True

    node.break_reply = babble
    with pytest.raises(ReplyBroken, match="does not speak HTTP"):
        work.echo.remote(1)


def test_a_silent_node_is_given_up(network, far):
    hasty = work.where.with_options(deadline=0.4)
    prefers(far, work.where)
    assert work.where.remote() != os.getpid()
    network.is_silent = True
    began = time.monotonic()
    with pytest.raises(TimeIsUp) as caught:
        hasty.remote()
    assert 0.3 < time.monotonic() - began < 2
    assert caught.value.code == "L8005"


def test_a_silent_node_is_overtaken_by_a_pure_call_here(network, far):
    work.slow.prepare()
    for _ in range(4):
        assert work.slow.remote(0.01) != os.getpid()
    runtime.current.engine.observe_local("work:slow", 1.0, 0.3)
    before = work.slow.explain(0.01).decision
    assert before.place == far.name
    network.is_silent = True
    began = time.monotonic()
    assert work.slow(0.01) == os.getpid()
    assert time.monotonic() - began < 2
    assert runtime.current.stats_of("work:slow").doubled_here == 1
    after = work.slow.explain(0.01).decision
    assert after.predictions[1].seconds > 1.5 * before.predictions[1].seconds, "it has learnt that the node is late"


def test_a_silent_node_is_given_up_for_a_call_here(network, far):
    patient = work.where
    patient.prepare()
    for _ in range(4):
        patient.remote()
    runtime.current.engine.observe_local("work:where", 1.0, 0.2)
    assert patient.explain().decision.place == far.name
    network.is_silent = True
    began = time.monotonic()
    assert patient() == os.getpid()
    assert time.monotonic() - began < 4


def test_a_network_that_becomes_slow_is_noticed_at_once(network, far):
    pure = work.total.with_options(pure=True)
    pure.prepare()
    for _ in range(4):
        pure.remote(BIG)
    for _ in range(3):
        runtime.current.engine.observe_local("work:total", BIG.nbytes + 128, 0.4)
    assert pure.explain(BIG).decision.place == far.name
    network.rate = 1_000_000
    began = time.monotonic()
    assert pure(BIG) == float(BIG.sum())
    assert time.monotonic() - began < 2.5, "the upload alone takes four seconds"
    assert pure.explain(BIG).decision.place == "local"


def test_a_busy_node_is_passed_over(node, client):
    prefers(client, work.where)
    node.refuse = (503, "L3010", "the node is full")
    with pytest.raises(NodeRefused) as caught:
        work.where.remote()
    assert caught.value.code == "L3010" and "full" in str(caught.value)
    assert work.where() == os.getpid()


def test_a_unit_that_dies_or_takes_too_long(node, client):
    with pytest.raises(NodeRefused) as caught:
        work.die.remote()
    assert caught.value.code == "L6007"
    with pytest.raises(NodeRefused) as caught:
        work.forever.remote()
    assert caught.value.code == "L3001"
    assert work.where.remote() != os.getpid()


def test_what_lacks_memory_on_a_node_runs_here(node, client):
    """A unit without a control group that counts memory raises MemoryError itself: that was the call's end."""
    prefers(client, work.refused_memory)
    runtime.current.engine.observe_local("work:refused_memory", os.getpid(), 30.0)
    with pytest.raises(NodeRefused) as caught:
        work.refused_memory.remote(os.getpid())
    assert caught.value.code == "L3003"
    assert work.refused_memory(os.getpid()) == os.getpid()
    node.refuse = (500, "L3003", "the unit ran out of memory")
    assert work.refused_memory(os.getpid()) == os.getpid()
    assert set(failures("refused_memory")) == {"L3003"}
    node.refuse = None
    # Of several that travel as one, too.
    home = os.getpid()
    assert list(lighterage.map(work.refused_memory, [home] * 20, chunk=5)) == [home] * 20


def test_a_wrong_token_is_said_so(node):
    with pytest.raises(NodeRefused) as caught:
        lighterage.connect(node.url, "lighter_wrong")
    assert (caught.value.status, caught.value.code) == (401, "L4005")


def test_other_versions_are_said_so(node):
    node.python = {"version": "3.8.1", "numpy": "1.17.0"}
    lighterage.connect(node.url, node.token)
    with pytest.raises(VersionsDiffer, match=r"Python 3\.8\.1 there"):
        work.double.remote(1)
    with pytest.warns(lighterage.OffloadWarning, match=r"Python 3\.8\.1"):
        assert work.slow(0.005) == os.getpid()
        deadline = time.monotonic() + 5
        while not work.slow.function.refuses and time.monotonic() < deadline:
            work.slow(0.005)
    assert work.double.with_options(any_version=True).remote(1) == 2


def test_a_node_that_builds_its_base_for_the_first_function_is_asked_again(node):
    node.base = {**node.python, "speed": 1e6}
    node.python = None
    client = lighterage.connect(node.url, node.token)
    assert work.double.remote(1) == 2
    assert runtime.current.engine.place(client.name).speed == client.known.speed > 1e3
    other = {"version": "3.8.1", "numpy": "1.17.0"}
    node.base, node.python = other, None
    node.functions.clear()
    lighterage.connect(node.url, node.token)
    with pytest.raises(VersionsDiffer, match=r"Python 3\.8\.1 there"):
        work.double.remote(1)


def test_a_node_without_python_is_said_so(node, monkeypatch):
    client = lighterage.connect(node.url, node.token)
    monkeypatch.setattr(client, "_info", lighterage.NodeInfo("1", 1, 1.0, ("wasm",), {}, 0.001))
    with pytest.raises(NodeRefused, match="runs no Python"):
        work.double.remote(1)


def test_what_is_too_large_is_refused_or_stays(node, client):
    with pytest.raises(CallTooLarge, match="body_bytes is 100000") as caught:
        work.small.remote(BIG[:20_000])
    assert caught.value.code == "L8007"
    assert node.calls == 0, "nothing was sent"
    assert (work.small(BIG[:20_000]) == BIG[:20_000]).all()


def test_two_gigabytes_are_refused_before_they_are_sent(node, client):
    array = np.empty(1 << 31, np.uint8)
    with pytest.raises(CallTooLarge):
        work.echo.with_options(compress=False).remote(array)
    assert node.calls == 0
    assert work.echo(array) is array


def test_objects_and_odd_arrays(client):
    with pytest.raises(DoesNotTravel, match="array of objects"):
        work.echo.remote(np.array([object()]))
    for array in (
        np.array([np.nan, -0.0, np.inf]), np.zeros((0, 3)), np.arange(20)[::3], np.arange(4, dtype=">f8"),
        np.asfortranarray(np.arange(6).reshape(2, 3)), np.zeros(()),
    ):  # fmt: skip
        back = work.echo.remote(array)
        assert back.dtype == array.dtype and back.shape == array.shape and back.tobytes() == array.tobytes()


def test_no_fallback_means_the_error(network, far):
    strict = work.where.with_options(fallback=False, local=False)
    strict.prepare()
    assert strict() != os.getpid()
    network.refuses = True
    network.cut()
    with pytest.raises(LighterageError):
        strict()


def test_nothing_is_left_open(node, network, far):
    work.where.prepare()
    work.where.remote()
    for _ in range(30):
        network.cut()
        try:
            work.where.remote()
        except LighterageError:
            runtime.current.nodes()[0].answered()
    lighterage.disconnect()
    gc.collect()
    mine = [
        os.readlink(f"/proc/self/fd/{number}")
        for number in os.listdir("/proc/self/fd")
        if os.path.exists(f"/proc/self/fd/{number}")
    ]
    assert sum("socket" in name for name in mine) < 25
    assert threading.active_count() < 60


def test_what_the_function_raises_is_no_reason_to_run_it_here(client):
    prefers(client, work.unknown)
    with pytest.raises(lighterage.RemoteError, match=r"Hidden: 1") as caught:
        work.unknown(os.getpid())
    assert caught.value.name.endswith("Hidden")
    assert not failures("unknown")


def test_a_result_that_does_not_travel_is_made_here(client):
    prefers(client, work.lock)
    assert hasattr(work.lock(), "acquire")
    assert failures("lock") == {"L8004": 1}


def test_a_node_that_stays_away_is_asked_by_one_timer(network, far):
    work.where.prepare()
    network.refuses = True
    network.cut()
    for _ in range(50):
        with pytest.raises(LighterageError):
            work.where.remote()
    assert len(runtime.current.timers._waiting) <= 2


def test_a_node_that_is_asked_whether_it_is_back_gets_no_calls(client, monkeypatch):
    """Its pause was over when the question began: until that was answered, calls went there and had to find out."""
    monkeypatch.setattr(node_module, "AWAY_SECONDS", 0.01)
    asked, answers, info = threading.Event(), threading.Event(), client.info

    def slow_info():
        asked.set()
        assert answers.wait(10)
        return info()

    monkeypatch.setattr(client, "info", slow_info)
    runtime.current.failed(client)
    assert asked.wait(10) and not client.is_away(time.monotonic())
    assert runtime.current.usable(None, time.monotonic()) == []
    answers.set()
    deadline = time.monotonic() + 10
    while runtime.current.usable(None, time.monotonic()) != [client]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def puts(function, client):
    """Calls the function until it is on the node."""
    deadline = time.monotonic() + 10
    while not function.function.is_ready(client):
        assert time.monotonic() < deadline
        function(0.005)
        time.sleep(0.01)


@pytest.mark.parametrize(
    "problem", [(503, "L4010", False), (503, "L5008", False), (507, "L5003", True), (500, "L2016", True)], ids=str
)
def test_a_node_that_cannot_take_a_function_for_now_is_asked_again(node, client, monkeypatch, problem):
    """One passing refusal kept the function off the node for as long as the program ran, and nothing said so."""
    monkeypatch.setattr(function, "AGAIN_SECONDS", 0.05)
    node.refused_deployments = [problem] * 2
    fresh = offload(work.slow.__lighterage_function__)
    puts(fresh, client)
    assert not node.refused_deployments and not fresh.function.refuses


def test_a_node_that_will_not_take_a_function_is_left_alone(node, client):
    node.refused_deployments = [(422, "L2006", True)] * 9
    fresh = offload(work.slow.__lighterage_function__)
    deadline = time.monotonic() + 10
    while not fresh.function.refuses:
        assert time.monotonic() < deadline
        fresh(0.005)
    for _ in range(20):
        fresh(0.005)
    assert len(node.refused_deployments) == 8


def test_who_deploys_what_another_one_deploys_waits_for_that(node, client, monkeypatch):
    monkeypatch.setattr(node_module, "TURN_SECONDS", 0.02)
    node.refused_deployments = [(409, "L2012", False), (409, "L2012", True)]
    assert work.double.remote(1) == 2


def test_a_node_without_memory_for_a_call_is_busy(node, client):
    node.refuse = (503, "L3013", "no memory is left")
    results = lighterage.map(work.double.with_options(local=False), range(3))
    threading.Timer(0.3, lambda: setattr(node, "refuse", None)).start()
    assert list(results) == [0, 2, 4]

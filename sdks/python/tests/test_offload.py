"""`@offload` as a program uses it: where calls run, what they return and raise, however they are called."""

import asyncio
import functools
import os
import socket
import sys
import threading
import time
from concurrent.futures import CancelledError

import numpy as np
import pytest

import lighterage
import work
import work_classes
from lighterage import DoesNotTravel, NoNode, offload
from lighterage.call.measure import result_bytes
from lighterage.places import runtime


def test_without_a_node_it_is_the_function():
    assert work.double(4) == 8
    assert work.double.__name__ == "double"
    assert work.where() == os.getpid()
    with pytest.raises(NoNode, match="no node is known"):
        work.double.remote(4)


def test_what_may_not_run_here_does_not(node):
    """Without a node the first call said so, and from the second on it ran here in silence."""
    only, later = (function.with_options(local=False) for function in (work.where, work.later))
    calls = (only, lambda: only.submit().result(10), lambda: asyncio.run(later(1)), lambda: asyncio.run(later.aio(1)))
    for call in calls * 2:
        with pytest.raises(NoNode, match="no node is known"):
            call()
    lighterage.connect(node.url, node.token)
    only.prepare()
    later.prepare()
    assert only() != os.getpid() and asyncio.run(later(1))[1] != os.getpid()
    node.refuse = (503, "L3010", "the node is full")
    for call in calls:
        with pytest.raises(lighterage.NodeRefused):
            call()
    lighterage.disconnect()
    for call in calls:
        with pytest.raises(NoNode):
            call()


def test_a_remote_call_runs_elsewhere(client):
    assert work.where.remote() != os.getpid()
    assert work.double.remote(21) == 42
    array = np.arange(100_000.0)
    assert work.total.remote(array) == array.sum()
    assert work.where.local() == os.getpid()


def test_a_result_can_be_written_to(client):
    array = work.double.remote(np.arange(4.0))
    array += 1
    assert array.tolist() == [1, 3, 5, 7]


def test_what_the_function_raises_arrives(client):
    with pytest.raises(work.TooSmall) as caught:
        work.fail.remote(3)
    assert caught.value.value == 3
    assert 'work.py", line' in str(caught.value.__cause__)


def test_methods_travel_with_their_object(client):
    scale = work.Scale(3.0)
    array, where = scale.times.remote(np.ones(2))
    assert array.tolist() == [3.0, 3.0] and where != os.getpid()
    assert scale.times.local(np.ones(1))[1] == os.getpid()
    assert work.Scale.twice.remote(4) == 8
    assert scale.times.submit(np.ones(1)).result(10)[0].tolist() == [3.0]


@pytest.mark.parametrize("name", ["above", "below"])
def test_class_methods_travel_with_their_class(client, name):
    if name == "below" and sys.version_info >= (3, 13):
        pytest.skip("other-python: classmethod hides what stands below it from Python 3.13 on")
    for kind, factor in ((work_classes.Unit, 2.0), (work_classes.Larger, 20.0)):
        method = getattr(kind, name)
        assert method(3.0)[:2] == method.local(3.0)[:2] == (kind.__name__, 3 * factor)
        there = method.remote(3.0, plus=1.0)
        assert there[:2] == (kind.__name__, 3 * factor + 1) and there[2] != os.getpid()
        assert getattr(kind(), name).remote(np.float64(1))[1] == factor
        assert [one[1] for one in lighterage.map(method, [1.0, 2.0, 3.0])] == [factor, 2 * factor, 3 * factor]
    assert work_classes.Unit.above.submit(1.0).result(10)[1] == 2.0


def test_a_class_travels_as_that_of_a_method_only(client):
    class Here(work_classes.Unit):
        pass

    for function, value in ((Here.above, 1.0), (work.echo, int), (work.echo, [work_classes.Unit])):
        with pytest.raises(DoesNotTravel):
            function.remote(value)
    assert Here.above(1.0)[:2] == ("Here", 2.0), "it runs here"
    with pytest.raises(DoesNotTravel):
        work_classes.give.remote()
    with pytest.raises(TypeError, match="@staticmethod above @offload"):
        offload(staticmethod(len))


def test_recursion_stays_in_the_unit(client):
    processes = work.recurse.remote(3)
    assert len(processes) == 4 and len(set(processes)) == 1 and processes[0] != os.getpid()


def test_async_functions_are_awaited(client):
    async def main():
        there, here, decided, aio = await asyncio.gather(
            work.later.remote(1), work.later.local(2), work.later(3), work.later.aio(4)
        )
        return there, here, decided[0], aio[0], await work.double.aio(5)

    there, here, decided, aio, plain = asyncio.run(main())
    assert there[0] == 2 and there[1] != os.getpid()
    assert here == (3, os.getpid())
    assert (decided, aio, plain) == (4, 5, 10)


def test_submit_gives_a_future(client):
    futures = [work.double.submit(x) for x in range(20)]
    assert [future.result(10) for future in futures] == [2 * x for x in range(20)]
    with pytest.raises(work.TooSmall):
        work.fail.submit(1).result(10)


def test_a_call_on_a_node_can_be_cancelled(node, client):
    only = work.slow.with_options(local=False, pure=False)
    only.prepare()
    future = only.submit(20.0)
    while not future.running():
        time.sleep(0.001)
    time.sleep(0.1)
    began = time.monotonic()
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result(5)
    assert future.cancelled() and time.monotonic() - began < 1


def test_it_learns_to_stay_and_to_go(node, client):
    assert {work.double(x) for x in range(50)} == {2 * x for x in range(50)}
    stats = {one.function: one for one in lighterage.stats()}
    assert set(stats["work:double"].calls) == {"local"}
    assert not node.functions, "what takes microseconds is not even put there"

    @offload
    def unused():
        pass

    places = [work.slow.with_options(pure=False)(0.02) for _ in range(30)]
    assert places[0] == os.getpid(), "the first call does not wait for the function to be put on the node"
    assert node.functions, "by now it has been put there, in the background"


def test_a_slow_machine_hands_on_what_is_long(node, client):
    """As on a device that is twenty times slower than the node."""

    real = work.total.__lighterage_function__
    engine = runtime.current.engine
    work.total.prepare()
    array = np.ones(1_000)
    for _ in range(3):
        engine.observe_local("work:total", 8_128, 0.5)
    assert work.total.explain(array).decision.place == client.name
    assert work.total(array) == real(array)
    assert node.calls == 1


def test_results_that_stay_here_are_measured(client):
    array = np.ones(100_000)
    work.total(array)
    work.double(array)
    found = [runtime.current.engine.work(name).result.guess(array.nbytes).middle for name in ("work:total", "work:double")]
    assert found[0] < 1_000 and found[1] == pytest.approx(array.nbytes, rel=0.01)


def test_a_result_that_will_not_be_measured_may_stay_here():
    class Shy:
        @property
        def nbytes(self):
            raise RuntimeError("not now")

    assert result_bytes(Shy()) is None
    assert result_bytes([1.5, b"four"]) == result_bytes([2.5, b"more"]) > 0


def test_energy_counts_where_a_policy_gives_it_a_weight(client):
    work.total.prepare()
    array = np.ones(1_000)

    def place_under(policy):
        lighterage.policy(policy)
        for _ in range(3):
            runtime.current.engine.observe_local("work:total", 8_128, 0.1)
        return work.total.explain(array).decision.place

    assert place_under(lighterage.Policy()) == client.name
    # As on a machine whose radio takes more than anything that it computes.
    costly = lighterage.Energy(compute=0.1, radio=1e6, wait=1e6, weight=1.0)
    assert place_under(lighterage.Policy(energy=costly)) == "local"


def test_explain_says_why(client):
    work.double(np.ones(1_000))
    text = str(work.double.explain(np.ones(1_000)))
    assert "work:double: local" in text
    assert client.name in text and "round trip" in text and "expected" in text
    print(text)


def test_explain_hears_what_the_nodes_say_for_the_first_time(node, monkeypatch):
    """A program's first look at the table: the nodes that its environment names were being asked, and it called them silent."""
    free = socket.create_server(("127.0.0.1", 0))
    silent = f"127.0.0.1:{free.getsockname()[1]}"
    free.close()
    monkeypatch.setenv("LIGHTERAGE_NODES", f"{node.url},http://{silent}")
    monkeypatch.setenv("LIGHTERAGE_TOKENS", f"{node.url}={node.token}")
    assert work.double(4) == 8
    explanation = work.double.explain(4)
    assert [known.place for known in explanation.decision.predictions] == ["local", node.name]
    assert next(note for note in explanation.notes if silent in note).startswith(f"{silent} does not answer: ")
    assert not any(node.name in note for note in explanation.notes)
    only = work.double.with_options(on=node.name)
    assert f"{silent} is none of `on`" in only.explain(4).notes


def test_explain_says_what_a_node_says(node, monkeypatch):
    monkeypatch.setenv("LIGHTERAGE_NODES", node.url)
    monkeypatch.setenv("LIGHTER_TOKEN", "lighter_wrong")
    (note,) = work.double.explain(4).notes
    assert note.startswith(f"{node.name} cannot be used: ") and "[L4005]" in note


def test_explain_waits_for_a_while_only_and_a_call_does_not(node, network, monkeypatch):
    network.is_silent = True
    monkeypatch.setenv("LIGHTERAGE_NODES", network.url)
    monkeypatch.setenv("LIGHTER_TOKEN", node.token)
    began = time.monotonic()
    assert work.double(4) == 8
    assert time.monotonic() - began < 0.5
    assert work.double.explain(4).notes == (f"{network.name} has not answered yet",)
    assert 0.9 < time.monotonic() - began < 2.5


def test_what_cannot_travel_runs_here_and_says_so(client):
    outer = 3

    @offload
    def inner(x):
        return x + outer

    with pytest.warns(lighterage.OffloadWarning), pytest.raises(DoesNotTravel, match="inside another function"):
        inner.remote(1)
    assert inner(1) == 4
    with pytest.raises(DoesNotTravel, match="open on this machine"):
        work.echo.remote(open(os.devnull))
    with pytest.raises(DoesNotTravel, match=r"_thread.lock|code travels"):
        work.lock.remote()


def test_a_method_is_offloaded_with_its_object(client):
    measure = offload(work.Meter(2.0).measure)
    assert measure(4)[0] == 8
    found = measure.remote(4)
    assert found[0] == 8 and found[1] != os.getpid()
    assert offload(work.Meter.measure).remote(work.Meter(3.0), 4)[0] == 12


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (functools.partial(work.Meter.measure, work.Meter(1.0)), "this is a partial"),
        (work.Meter(1.0), "this is an object of Meter"),
        (work.Meter.named, "above @classmethod"),
        ("x".upper, "str.upper is a method of Python's own"),
        (str.upper, "str.upper is a method of Python's own"),
        (work.Scale(2.0).times, "offloaded already"),
        (3, "an int, which cannot be called"),
    ],
)
def test_what_has_no_name_there_is_refused_at_once(function, said):
    with pytest.raises(TypeError, match=said):
        offload(function)


def test_stats_tell_of_every_call(client):
    """Six calls that ran here and one on a node were told as one and one: those on the short way came later."""
    work.double.remote(1)
    before = next(one for one in lighterage.stats() if one.function == "work:double")
    for _ in range(30):
        work.double(1)
    after = next(one for one in lighterage.stats() if one.function == "work:double")
    assert sum(after.calls.values()) == sum(before.calls.values()) + 30
    assert sum(next(one for one in lighterage.stats() if one.function == "work:double").calls.values()) == 31
    for _ in range(200):
        work.double(1)
    assert sum(next(one for one in lighterage.stats() if one.function == "work:double").calls.values()) == 231


@pytest.mark.parametrize("value", ["\udcff", np.longdouble(1) / 3])
def test_odd_values_run_there_too(value, client):
    assert work.echo.remote(value) == value


def test_a_result_that_does_not_travel_falls_back(client):
    for levels in (125, 200):
        assert work.deep.with_options(local=True)(levels) is not None
        with pytest.raises(DoesNotTravel):
            work.deep.remote(levels)


def test_arguments_that_do_not_travel_run_here(client):
    runtime.current.engine.observe_local("work:echo", 192, 5.0)
    work.echo.prepare()
    value = threading.Lock()
    assert work.echo(value) is value


def test_other_options_leave_known_what_is_known(node, client):
    """Each `f.with_options(deadline=…)(x)` took the function to be on no node, so none could meet the deadline."""

    def wait(function):
        return next(one for one in function.explain(4).decision.predictions if one.place == client.name).wait

    fresh = offload(work.double.__lighterage_function__)
    assert wait(fresh.with_options(deadline=0.5)) > 0.0
    fresh.with_options(deadline=5.0).prepare()
    assert wait(fresh) == wait(fresh.with_options(deadline=0.5)) == wait(fresh.with_options(retries=3)) == 0.0
    # Another code.
    assert wait(fresh.with_options(limits=lighterage.Limits(seconds=7))) > 0.0
    assert wait(fresh.with_options(any_version=True)) > 0.0
    for _ in range(2):
        fresh.with_options(fallback=False).function.vain.begin(time.monotonic())
    assert "its last calls on nodes came to nothing" in str(fresh.explain(4))


def test_two_versions_live_side_by_side(node, client):
    work.double.prepare()
    other = work.double.with_options(limits=lighterage.Limits(seconds=7))
    assert (other.remote(2), work.double.remote(3)) == (4, 6)
    assert len(node.functions) == 2
    for seconds in range(10, 16):
        work.double.with_options(limits=lighterage.Limits(seconds=seconds)).prepare()
    assert len(node.functions) == 4, "old versions are removed"
    assert other.remote(2) == 4, "one that was removed is put there again"


def test_a_codec_can_be_chosen(client):
    for codec in ("json", "raw", "frame"):
        array = work.double.with_options(codec=codec).remote(np.arange(3.0))
        assert array.tolist() == [0, 2, 4]
    with pytest.raises(ValueError, match="is none of"):
        work.double.with_options(codec="xml")


def test_a_child_process_has_connections_of_its_own(client):
    work.double.prepare()
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, str(work.double.remote(5)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 10) == b"10"
    assert work.double.remote(6) == 12


def test_many_threads_call_at_once(client):
    work.double.prepare()
    results = []
    threads = [threading.Thread(target=lambda x=x: results.append(work.double.remote(x))) for x in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [2 * x for x in range(24)]

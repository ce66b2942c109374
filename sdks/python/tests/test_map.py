"""`lighterage.map`: in order, everything once, whatever nodes do; and no more memory than needed."""

import gc
import io
import itertools
import os
import queue
import threading
import time

import numpy as np
import pytest

import lighterage
import work
from lighterage import DoesNotTravel, NodeRefused, NodeUnreachable, NoNode, farm, progress
from lighterage.places import node as node_module
from lighterage.places import runtime, wire
from proxy import Hole


@pytest.fixture(params=["alone", "with a node"])
def anywhere(request):
    return request.getfixturevalue("client") if request.param != "alone" else None


def test_results_come_in_order(anywhere):
    assert list(lighterage.map(work.double, range(2_000))) == [2 * x for x in range(2_000)]
    assert list(lighterage.map(work.double, [])) == []
    assert list(lighterage.map(work.echo, iter("abc"))) == ["a", "b", "c"]


def test_a_plain_function_and_several_iterables_will_do(anywhere):
    assert list(lighterage.map(max, [1, 5], (4, 2))) == [4, 5]
    assert [x[0] for x in lighterage.map(work.Scale(2.0).times, [1, 2, 3])] == [2, 4, 6]


def test_nodes_do_most_of_what_is_long(client):
    list(lighterage.map(work.slow.with_options(local=False), [0.2] * 3))  # Now there are units.
    began = time.monotonic()
    places = list(lighterage.map(work.slow, [0.05] * 20))
    took = time.monotonic() - began
    assert len(places) == 20 and len(set(places) - {os.getpid()}) == 2
    assert took < 0.8, "three at once, not one after the other"


def test_small_tasks_travel_together(node, client):
    work.double.prepare()
    assert list(lighterage.map(work.double, range(1_000))) == [2 * x for x in range(1_000)]
    assert node.calls < 300
    before = node.calls
    assert list(lighterage.map(work.where.with_options(local=False), range(10), chunk=1)).count(os.getpid()) == 0
    assert node.calls == before + 10


def test_what_is_raised_is_raised_in_its_place(anywhere):
    results = lighterage.map(work.reciprocal, [4, 2, 0, 1])
    assert [next(results), next(results)] == [0.25, 0.5]
    with pytest.raises(ZeroDivisionError):
        next(results)
    with pytest.raises(StopIteration):
        next(results)


def test_what_the_items_raise_is_raised_in_its_place(anywhere):
    def items():
        yield from range(3)
        raise LookupError("no more")

    results = lighterage.map(work.double, items())
    assert [next(results) for _ in range(3)] == [0, 2, 4]
    with pytest.raises(LookupError, match="no more"):
        next(results)


@pytest.mark.parametrize("chunk", [None, 5])
def test_items_may_come_from_results(anywhere, chunk):
    """The items were waited for with the lock that results need: this hung, and so did the end of the program."""
    if anywhere is not None:
        work.double.prepare()
    items = queue.Queue()
    items.put(1)
    results = lighterage.map(work.double, iter(items.get, None), chunk=chunk)
    found = []
    for result in results:
        found.append(result)
        items.put(None if len(found) == 6 else result + 1)
    assert found == [2, 6, 14, 30, 62, 126]


def test_a_map_can_be_left_while_it_waits_for_items(anywhere):
    items = queue.Queue()
    items.put(1)
    results = lighterage.map(work.double, iter(items.get, None))
    assert next(results) == 2
    results.close()
    with pytest.raises(StopIteration):
        next(results)
    items.put(None)


def test_what_size_raises_is_raised_in_its_place():
    def size(x):
        return x if x < 2 else 1 / 0

    results = lighterage.map(work.double.with_options(size=size), range(4))
    assert [next(results), next(results)] == [0, 2]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_no_more_is_taken_than_fits(anywhere, monkeypatch):
    monkeypatch.setattr(farm, "AHEAD_ITEMS", 20)
    taken = []
    results = lighterage.map(work.double, map(lambda x: taken.append(x) or x, itertools.count()))
    assert next(results) == 0
    time.sleep(0.3)
    assert len(taken) <= 22
    assert [next(results) for _ in range(100)] == [2 * x for x in range(1, 101)]
    results.close()


def test_large_items_wait_for_their_turn(client, monkeypatch):
    monkeypatch.setattr(farm, "AHEAD_BYTES", 16 << 20)
    made = []

    def arrays():
        for _ in range(40):
            made.append(1)
            yield np.zeros(1 << 18)

    results = lighterage.map(work.echo.with_options(local=False), arrays())
    next(results)
    time.sleep(0.5)
    assert len(made) <= 14
    assert sum(1 for _ in results) == 39


def test_large_results_wait_for_their_reader(anywhere, monkeypatch):
    """Only what came in was counted: of small arguments with large results 4,096 results were held, of any size."""
    monkeypatch.setattr(farm, "AHEAD_BYTES", 16 << 20)
    asked = []
    results = lighterage.map(work.large, map(lambda n: asked.append(n) or n, itertools.repeat(1 << 18, 100)))
    next(results)
    time.sleep(1.0)
    assert len(asked) <= 50
    assert sum(1 for _ in results) == 99


@pytest.mark.parametrize("counts", [range(1, 60), range(60, 1, -1)], ids=["growing", "shrinking"])
def test_what_was_handed_out_is_held_no_more(anywhere, counts):
    """As much was taken off as an item of the last chunk had: the bound was lost, or the map went slowly for ever."""
    results = lighterage.map(work.total, (np.ones(1_000 * count) for count in counts))
    assert list(results) == [1_000.0 * count for count in counts]
    assert (results._farm._shared.held_bytes, results._farm._shared.held) == (0, {})


def test_a_node_that_fails_in_between_is_made_up_for(node, network):
    lighterage.connect(network.url, node.token)
    work.double.prepare()
    results = lighterage.map(work.double, range(3_000), chunk=5)
    got = [next(results) for _ in range(100)]
    network.refuses = True
    network.cut()
    got += list(results)
    assert got == [2 * x for x in range(3_000)]


def test_a_full_node_is_asked_again(node, client):
    remote = work.double.with_options(local=False)
    remote.prepare()
    node.refuse = (503, "L3010", "the node is full")
    results = lighterage.map(remote, range(5))
    threading.Timer(0.3, lambda: setattr(node, "refuse", None)).start()
    assert list(results) == [0, 2, 4, 6, 8]


def test_an_item_that_a_node_does_not_bear_leaves_it_its_workers(client):
    """Each item that failed on a node ended one of the node's workers: three of them, and all was done here."""
    home = os.getpid()
    work.die_elsewhere.prepare()
    places = list(lighterage.map(work.die_elsewhere, range(200), home=home))
    assert places[:3] == [home] * 3 and set(places) != {home}


def until(is_so):
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_that_a_node_was_full_is_no_try_of_an_item(node, network):
    """A full node was asked again and again, and then one broken connection was one too many."""
    client = lighterage.connect(network.url, node.token)
    napping = work.nap.with_options(local=False)
    napping.prepare()
    node.refuse = (503, "L3010", "the node is full")
    results = lighterage.map(napping, range(5), chunk=1)
    until(lambda: node.calls > 30)
    node.delay, node.refuse = 1.0, None
    calls = node.calls
    until(lambda: node.calls > calls)
    network.refuses = True
    network.cut()
    until(lambda: client.has_failed)
    network.refuses, node.delay = False, 0.0
    assert list(results) == list(range(5))


def test_a_node_that_is_silent_for_a_while_costs_no_item(node, client, monkeypatch):
    """Its workers tried items to find out whether it was back; the third time was the item's end."""
    monkeypatch.setattr(node_module, "AWAY_SECONDS_MAX", 0.5)
    monkeypatch.setattr(wire, "CONNECT_SECONDS", 0.3)
    napping = work.nap.with_options(local=False)
    napping.prepare()
    results = lighterage.map(napping, range(300), chunk=1)
    got = [next(results) for _ in range(50)]
    with Hole() as hole, monkeypatch.context() as silent:
        silent.setattr(client, "_api", wire.Api(hole.url, node.token))
        time.sleep(3.5)
    assert got + list(results) == list(range(300))


def test_a_node_that_is_silent_from_the_beginning_is_left_out(node, network, monkeypatch):
    client = lighterage.connect(network.url, node.token)
    only = work.double.with_options(local=False)
    only.prepare()
    network.refuses = True
    network.cut()
    runtime.current.failed(client)
    began = time.monotonic()
    assert list(lighterage.map(work.double, range(100))) == [2 * x for x in range(100)]
    assert time.monotonic() - began < 5, "this machine does not wait for it"
    monkeypatch.setattr(farm, "STUCK_SECONDS", 0.5)
    with pytest.raises(NodeUnreachable, match="no node is left"):
        list(lighterage.map(only, range(10)))


def test_a_unit_that_dies_is_an_error_in_its_place(client):
    only = work.die_at_three.with_options(local=False)
    results = lighterage.map(only, range(6), chunk=2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(NodeRefused):
        next(results)


def test_what_cannot_travel_is_done_here(client):
    items = [1, threading.Lock(), 2]
    assert list(lighterage.map(work.echo, items)) == items
    with pytest.raises(DoesNotTravel):
        list(lighterage.map(work.echo.with_options(local=False), items))
    with pytest.raises(NoNode):
        list(lighterage.map(work.echo, [1], on="elsewhere:1"))


@pytest.mark.parametrize("chunk", [None, 1, 5])
def test_a_result_that_does_not_travel_is_made_here(client, chunk):
    """Once there was a node, a map ended with an error that it did not have without one."""
    work.odd_locks.prepare()
    results = list(lighterage.map(work.odd_locks, range(20), chunk=chunk))
    assert results[::2] == list(range(0, 20, 2)) and all(hasattr(lock, "acquire") for lock in results[1::2])
    with pytest.raises(DoesNotTravel):
        list(lighterage.map(work.odd_locks.with_options(local=False), range(20), chunk=chunk))


def test_leaving_it_ends_what_runs(node, client):
    work.slow.prepare()
    before = threading.active_count()
    results = lighterage.map(work.slow.with_options(local=False), [20.0] * 10)
    time.sleep(0.3)
    del results
    gc.collect()
    deadline = time.monotonic() + 5
    while threading.active_count() > before + 6 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() <= before + 6
    assert not runtime.current.stats_of("work:slow").calls


def test_a_bar_is_drawn_on_a_terminal():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    out = Terminal()
    bar = progress.Progress("work", 10, out=out)
    bar.show(3, "local 3")
    bar.end(10, "local 10")
    assert "3/10" in out.getvalue() and out.getvalue().endswith("\n")
    assert progress.line("work", 5, 10, 2.0, "a 5") == "work  [############............] 5/10  2.5/s  2.0 s left  a 5"
    assert progress.line("work", 500, None, 2.0, "") == "work  500  250/s"
    assert "1:02:05" in progress.line("w", 1, 3726, 1.0, "") and "1:40" in progress.line("w", 1, 101, 1.0, "")
    silent = io.StringIO()
    progress.Progress("work", 10, out=silent).show(3, "")
    assert silent.getvalue() == ""

"""Two nodes: which one a call goes to, where it goes when that one fails, and what becomes of a map."""

import os
import threading
import time

import numpy as np
import pytest

import lighterage
import work
from lighterage import NodeRefused, NoNode, TimeIsUp, farm
from lighterage.decide import LOCAL, Choice, Engine, Stages
from lighterage.errors import LighterageError
from lighterage.places import runtime
from proxy import Proxy
from standin import StandIn

BUSY = (503, "L3010", "the node is full")


@pytest.fixture
def second():
    made = StandIn()
    yield made
    made.close()


@pytest.fixture
def nodes(node, second):
    """Both, and the client's side of both: the first is behind a network that can be made bad."""
    network = Proxy(node.port)
    clients = [lighterage.connect(network.url, node.token), lighterage.connect(second.url, second.token)]
    yield [node, second], clients, network
    network.close()


def teach(function, seconds, *args):
    """What calls with these arguments took, by place: what a device knows after some of them."""
    engine, name = runtime.current.engine, function._name
    size, bytes_up = function.function.sizes(args, {})
    for place, took in seconds.items():
        stages = Stages(1e-4, 0.0, 2e-3, 0.0, took, 0.0, 1e-4, bytes_up, 100)
        for _ in range(4):
            if place == LOCAL:
                engine.observe_local(name, size, took)
            else:
                engine.observe_remote(name, place, size, stages, time.monotonic())


def failures(function):
    return runtime.current.stats_of(f"work:{function}").failures


def test_the_sooner_of_two_nodes_is_chosen(nodes):
    (first, second), (slower, faster), _ = nodes
    work.where.prepare()
    teach(work.where, {LOCAL: 30.0, slower.name: 2.0, faster.name: 0.05})
    decision = work.where.explain().decision
    assert [known.place for known in decision.predictions] == [LOCAL, slower.name, faster.name]
    here, there, sooner = (known.seconds for known in decision.predictions)
    assert sooner < 0.1 < there < 3 < here
    assert (decision.place, decision.choice) == (faster.name, Choice.BEST)
    assert work.where() != os.getpid() and (first.calls, second.calls) == (0, 1)
    # Other work slows it down: from now on the other one is the better.
    teach(work.where, {faster.name: 20.0})
    assert work.where.explain().decision.place == slower.name
    assert work.where() != os.getpid() and (first.calls, second.calls) == (1, 1)


def test_on_names_the_node(nodes):
    (first, second), (one, other), _ = nodes
    work.where.prepare()
    teach(work.where, {one.name: 2.0, other.name: 0.05})
    work.where.remote()
    assert (first.calls, second.calls) == (0, 1), "of several the best"
    for on in (one, one.name, one.url, [one]):
        work.where.remote(on=on)
    assert (first.calls, second.calls) == (4, 1)
    # By now it is known how soon the first is; so is the second, once it has other work.
    teach(work.where, {other.name: 20.0})
    work.where.remote(on=[one, other.name])
    assert (first.calls, second.calls) == (5, 1), "the better of these"
    teach(work.where, {LOCAL: 30.0})
    only = work.where.with_options(on=one.name)
    assert only() != os.getpid() and (first.calls, second.calls) == (6, 1)
    assert [known.place for known in only.explain().decision.predictions] == [LOCAL, one.name]
    with pytest.raises(NoNode, match="elsewhere:1"):
        work.where.remote(on="elsewhere:1")


def test_what_one_node_does_not_do_another_one_does(nodes):
    (first, second), (one, other), _ = nodes
    first.refuse = BUSY
    work.where.prepare()
    alone = work.where.with_options(retries=0)
    strict = alone.with_options(fallback=False)

    def asked(call):
        """Where it ran, and how often each node was asked, on a device that takes the first for the best."""
        runtime.current.engine = Engine()
        teach(work.where, {LOCAL: 30.0, one.name: 0.05, other.name: 2.0})
        before = first.calls, second.calls
        try:
            place = "here" if call() == os.getpid() else "there"
        except NodeRefused as error:
            place = error.code
        return place, first.calls - before[0], second.calls - before[1]

    assert asked(work.where) == asked(work.where.remote) == ("there", 1, 1)
    assert failures("where") == {"L3010": 2}
    # Nobody else may be asked.
    assert asked(alone) == ("here", 1, 0)
    assert asked(alone.remote) == asked(strict) == ("L3010", 1, 0)
    second.refuse = BUSY
    assert asked(work.where) == ("here", 1, 1)
    assert asked(work.where.remote) == asked(work.where.with_options(fallback=False)) == ("L3010", 1, 1)
    assert failures("where") == {"L3010": 11}, "each refusal is counted"


def test_what_a_node_could_not_finish_for_its_own_sake_is_not_asked_of_another(nodes):
    (first, second), (one, other), _ = nodes
    first.refuse = (504, "L3001", "it took too long")
    work.where.prepare()
    teach(work.where, {LOCAL: 30.0, one.name: 0.05, other.name: 2.0})
    assert work.where() == os.getpid() and (first.calls, second.calls) == (1, 0)


@pytest.mark.parametrize("way", ["decided", "remote"])
def test_a_node_that_dies_in_a_call_is_made_up_for_by_the_other(nodes, way):
    (first, second), (one, other), network = nodes
    first.delay = 60.0
    work.where.prepare()
    teach(work.where, {LOCAL: 30.0, one.name: 0.05, other.name: 2.0})

    def die():
        while not first.calls:
            time.sleep(0.01)
        network.refuses = True
        network.cut()

    killer = threading.Thread(target=die)
    killer.start()
    assert (work.where() if way == "decided" else work.where.remote()) != os.getpid()
    killer.join()
    assert (first.calls, second.calls) == (1, 1)
    assert sum(failures("where").values()) == 1 and set(failures("where")) <= {"L8002", "L1102"}
    assert work.where.remote() != os.getpid() and (first.calls, second.calls) == (1, 2), "it is left alone now"


def test_the_second_node_is_waited_for_no_longer_than_the_first(nodes):
    """Both had lost their network: the call left the first, and waited five minutes for the second to run here."""
    (first, second), (one, other), _ = nodes
    first.refuse, second.delay = BUSY, 60.0
    work.where.prepare()
    teach(work.where, {LOCAL: 1.0, one.name: 0.05, other.name: 0.3})
    began = time.monotonic()
    assert work.where() == os.getpid() and time.monotonic() - began < 20.0
    assert (first.calls, second.calls) == (1, 1)
    assert failures("where") == {"L3010": 1, "L8005": 1}


def test_a_deadline_holds_for_the_second_node_too(nodes):
    (first, second), (one, other), _ = nodes
    first.refuse, second.delay = BUSY, 60.0
    hasty = work.where.with_options(deadline=5.0)
    hasty.prepare()
    # The first is given as long as it is expected to take.
    teach(work.where, {LOCAL: 30.0, one.name: 2.0, other.name: 2.2})
    with pytest.raises(TimeIsUp):
        hasty()
    assert (first.calls, second.calls) == (1, 1)


def test_a_map_uses_both_and_stays_in_order(nodes):
    (first, _), (one, other), _ = nodes
    items = list(range(60))
    napping = work.nap.with_options(local=False)
    napping.prepare()
    assert list(lighterage.map(napping, items, chunk=1)) == items
    assert set(runtime.current.stats_of("work:nap").calls) == {one.name, other.name}
    before = first.calls
    assert list(lighterage.map(napping, items, chunk=1, on=other)) == items
    assert first.calls == before


def test_a_map_goes_on_with_the_node_that_is_left(nodes):
    _, (_, other), network = nodes
    napping = work.nap.with_options(local=False)
    napping.prepare()
    results = lighterage.map(napping, range(300), chunk=2)
    got = [next(results) for _ in range(20)]
    network.refuses = True
    network.cut()
    assert got + list(results) == list(range(300))
    assert runtime.current.stats_of("work:nap").calls[other.name] >= 100


def test_a_map_passes_by_a_node_that_stays_full(nodes, monkeypatch):
    monkeypatch.setattr(farm, "STUCK_SECONDS", 0.2)
    (first, _), (_, other), _ = nodes
    first.refuse = BUSY
    napping = work.nap.with_options(local=False)
    napping.prepare()
    assert list(lighterage.map(napping, range(100), chunk=1)) == list(range(100))
    assert set(runtime.current.stats_of("work:nap").calls) == {other.name}


def ends(results):
    """What comes of a map, and what it ends with. It must end."""
    got, ended = [], []

    def read():
        try:
            got.extend(results)
        except BaseException as error:
            ended.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(60)
    assert not reader.is_alive(), "the map never ends"
    return got, ended[0] if ended else None


def test_a_map_ends_where_all_nodes_stay_full(nodes, monkeypatch):
    monkeypatch.setattr(farm, "STUCK_SECONDS", 0.5)
    (first, second), _, _ = nodes
    only = work.double.with_options(local=False)
    only.prepare()
    first.refuse = second.refuse = BUSY
    got, error = ends(lighterage.map(only, range(100)))
    assert got == [] and isinstance(error, NodeRefused) and error.code == "L3010"
    # With this machine among the places it is done here.
    assert ends(lighterage.map(work.double, range(100))) == ([2 * x for x in range(100)], None)


def test_a_map_ends_where_all_nodes_are_gone_and_what_was_done_comes_first(node, network, monkeypatch):
    """What is missing is said at its place: said before what nobody had read yet, it was lost, and the reader waited."""
    monkeypatch.setattr(farm, "STUCK_SECONDS", 0.5)
    lighterage.connect(network.url, node.token)
    only = work.double.with_options(local=False)
    only.prepare()
    monkeypatch.setattr(farm, "AHEAD_ITEMS", 50)
    results = lighterage.map(only, range(10_000), chunk=1)
    done = results._farm._shared.results
    while not all(at in done for at in range(40)):
        time.sleep(0.01)
    network.refuses = True
    network.cut()
    got, error = ends(results)
    assert len(got) >= 40 and got == [2 * x for x in range(len(got))]
    assert isinstance(error, LighterageError) and isinstance(error, ConnectionError)


def test_a_body_that_the_node_has_no_room_for_is_too_large_at_once(node, client):
    """Not busy: that would be waited for, and it will never be otherwise."""
    only = work.total.with_options(local=False)
    only.prepare()
    node.refuse = (413, "L3006", "the node takes bodies up to 268435456 bytes")
    array = np.ones(100)
    for call in (lambda: only.remote(array), lambda: list(lighterage.map(only, [array] * 3))):
        before = node.calls
        with pytest.raises(lighterage.CallTooLarge):
            call()
        assert node.calls - before <= 6, "each item once or not at all"
    assert work.total(array) == 100.0

"""Pure calls at two places at once: the first result counts, the other half ends, and nothing of it is left."""

import asyncio
import contextvars
import os
import signal
import sys
import threading
import time
from concurrent.futures import CancelledError

import pytest

import lighterage
import work
from lighterage import offload
from lighterage.call import learn
from lighterage.call.race import Overtaken, Race
from lighterage.decide import LOCAL, Choice
from lighterage.helpers import Helpers
from lighterage.places import runtime
from lighterage.places.wire import Api, Cancel
from proxy import Hole

HERE = os.getpid()


def stats(function):
    return runtime.current.stats_of(f"work:{function}")


def is_quiet():
    """Whether nothing that lost still runs, within a second."""
    deadline = time.monotonic() + 1
    while runtime.current.is_disturbed and time.monotonic() < deadline:
        time.sleep(0.01)
    return not runtime.current.is_disturbed


@pytest.fixture(autouse=True)
def turns_are_as_before():
    before = sys.getswitchinterval()
    yield
    assert is_quiet()
    assert sys.getswitchinterval() == before


def test_a_call_that_begins_here_is_overtaken_by_a_node(client):
    work.spin.prepare()
    began = time.monotonic()
    place, _ = work.spin(HERE, 20.0)
    assert place != HERE and time.monotonic() - began < 5
    assert (stats("spin").doubled, stats("spin").doubled_here) == (1, 0)
    assert set(stats("spin").calls) == {client.name}
    assert is_quiet(), "what lost was stopped"
    assert work.spin.explain(HERE, 20.0).decision.place == client.name, "it is known that here takes longer"


def test_a_function_that_is_not_there_yet_is_put_there_while_it_runs_here(node, client):
    place, _ = work.spin(HERE, 20.0)
    assert place != HERE and len(node.functions) == 1


def test_a_call_that_is_sooner_here_ends_the_one_on_the_node(node, client):
    work.crawl.prepare()
    assert work.crawl(HERE, 20.0) == HERE
    assert (stats("crawl").doubled, stats("crawl").doubled_here) == (1, 1)
    assert set(stats("crawl").calls) == {LOCAL}


def test_a_call_that_is_sooner_here_ends_one_that_is_not_connected_yet(node, client, monkeypatch):
    """It had its result and waited on, for three seconds, for a connection that it no longer needed."""
    work.crawl.prepare()
    with Hole() as hole:
        monkeypatch.setattr(client, "_api", Api(hole.url))
        began = time.monotonic()
        assert work.crawl(HERE, 20.0) == HERE
        assert time.monotonic() - began < 2
    assert (stats("crawl").doubled, stats("crawl").doubled_here, node.calls) == (1, 1, 0)
    assert runtime.current.usable(None, time.monotonic()) == [client], "it is not known to be gone"


def test_what_is_soon_done_here_is_not_sent(node, client):
    work.spin.prepare()
    for second in range(5):
        # A network on which the node could not be sooner, however long it takes to begin a thread here.
        runtime.current.engine.place(client.name).round_trip.observe(2.0, time.monotonic() + second)
    assert work.spin(HERE, 0.0)[0] == HERE
    assert node.calls == 0 and stats("spin").doubled == 0


def test_what_the_half_here_raises_arrives_as_itself(client):
    work.stumble.prepare()
    with pytest.raises(work.TooSmall) as caught:
        work.stumble(HERE, 0.0)
    assert caught.value.value == HERE and "stumble" in str(caught.traceback[-1])


def test_a_function_may_run_at_one_place_only(node, client):
    alone = work.spin.with_options(race=False)
    alone.prepare()
    assert alone(HERE, 0.3) == (HERE, threading.get_ident()), "and here in the thread that calls it"
    local, there = alone.with_options(race=True).explain(HERE, 0.3).decision.predictions
    assert local.seconds > 0.2 and there.wait == 0.0, "what is known is shared"
    assert node.calls == 0 and stats("spin").doubled == 0
    assert "runs at one place only: race=False" in str(alone.explain(HERE, 0.3))
    assert "runs at one place only: it is not marked pure" in str(work.double.explain(1))


def test_explain_says_that_it_would_race(client):
    work.spin.prepare()
    found = work.spin.explain(HERE, 1.0)
    assert found.decision.choice is Choice.RACED and found.decision.rival == client.name
    assert f"raced: {client.name} runs it as well" in str(found)
    assert work.spin.explain(HERE, 1.0).decision.choice is found.decision.choice, "asking changes nothing"


def test_a_function_that_keeps_the_interpreter_is_no_longer_raced(node, client):
    work.keep_busy.prepare()
    assert work.keep_busy(HERE, "40000000") == sum(range(40_000_000)), "the caller had no turn to ask the node"
    assert node.calls == 0
    engine = runtime.current.engine
    engine.observe_held("work:keep_busy", True)
    assert engine.work("work:keep_busy").holds, "twice in a row is no chance"
    decision = work.keep_busy.explain(HERE, "40000000").decision
    assert decision.place != LOCAL or decision.rival is None


def test_one_stall_does_not_end_races_of_quick_calls():
    """A second in which this machine did something else made a helper cost 0.2 s: nothing shorter was watched."""
    learn.helped(runtime.current, 1.0)
    assert runtime.current.engine.helper_seconds < 2e-3
    for _ in range(100):
        learn.helped(runtime.current, 1.0)
    assert runtime.current.engine.helper_seconds <= learn.HELPER_SECONDS_MAX


def test_an_interrupt_ends_both_halves(node, client):
    node.delay = 20.0
    work.spin.prepare()
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.4)
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            work.spin(HERE, 20.0)
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert time.monotonic() - began < 3
    assert is_quiet()


def test_a_race_can_be_cancelled(node, client):
    node.delay = 20.0
    work.spin.prepare()
    future = work.spin.submit(HERE, 20.0)
    deadline = time.monotonic() + 5
    while not future.cancel():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with pytest.raises(CancelledError):
        future.result(5)
    assert is_quiet()


def test_a_race_can_be_awaited(client):
    work.spin.prepare()
    assert asyncio.run(work.spin.aio(HERE, 20.0))[0] != HERE


def test_a_deadline_is_kept_by_the_place_that_can(client):
    hasty = work.spin.with_options(deadline=2.0)
    hasty.prepare()
    began = time.monotonic()
    assert hasty(HERE, 20.0)[0] != HERE and time.monotonic() - began < 2


def test_a_node_that_fails_leaves_the_call_here(node, client):
    work.crawl.prepare()
    node.refuse = (503, "L3007", "busy")
    assert work.crawl(HERE, 0.0) == HERE
    assert stats("crawl").failures


def test_what_a_half_calls_is_not_raced(node, client):
    work.nested.prepare()
    work.spin.prepare()
    assert work.nested.local(HERE, 0.2)[0] == HERE
    runtime.current.engine = type(runtime.current.engine)()
    race = Race(lambda: work.spin.explain(HERE, 1.0).decision.rival, Cancel())
    race.hand(runtime.current.helpers)
    assert race.wait_here(5).get() is None
    assert work.spin.explain(HERE, 1.0).decision.rival == client.name


def test_context_variables_are_those_of_the_caller(client):
    variable = contextvars.ContextVar("variable")
    variable.set("mine")
    race = Race(variable.get, Cancel())
    race.hand(runtime.current.helpers)
    assert race.wait_here(5).get() == "mine"


def test_a_half_that_is_stopped_may_clean_up():
    cleaned = threading.Event()

    def work_on():
        try:
            while True:
                pass
        finally:
            cleaned.set()

    race = Race(work_on, Cancel())
    race.hand(Helpers())
    race.wait_here(0.1)
    assert race.there_won()
    assert cleaned.wait(5) and race.outcome is None


def test_a_half_that_will_not_stop_runs_out_and_says_so():
    ended = threading.Event()
    said = []
    race = Race(lambda: time.sleep(0.5), Cancel())
    race.on_end = lambda is_stopped: (said.append(is_stopped), ended.set())
    race.hand(Helpers())
    race.wait_here(0.1)
    assert race.there_won() and race.is_left_running
    assert ended.wait(5) and said == [False] and not race.is_left_running


def test_being_told_to_stop_too_late_harms_nobody():
    """A thread may be told in the instant in which it is done; it must then not fall over in what it does next."""
    helpers, failed = Helpers(), []
    before, threading.excepthook = threading.excepthook, failed.append
    try:
        for turn in range(300):
            race = Race(lambda turn=turn: sum(range(turn)), Cancel())
            race.hand(helpers)
            race.wait_here(turn * 1e-6)
            race.there_won()
        done = Race(lambda: "still there", Cancel())
        done.hand(helpers)
        assert done.wait_here(5).get() == "still there"
    finally:
        threading.excepthook = before
    assert not failed


def test_helpers_are_few_and_go():
    helpers = Helpers()
    many = [Race(lambda: time.sleep(0.05), Cancel()) for _ in range(30)]
    for race in many:
        race.hand(helpers)
    for race in many:
        assert race.wait_here(5) is not None
    time.sleep(0.2)
    assert len(helpers._idle) <= 4


def test_nothing_is_left_after_many_races(node, client):
    work.spin.prepare()
    fresh = [offload(pure=True)(work.spin.__lighterage_function__) for _ in range(1)]
    for _ in range(20):
        runtime.current.engine.forget(client.name)
        runtime.current.engine._works.clear()
        runtime.current.engine._tries.clear()
        assert fresh[0].with_options(any_version=True)(HERE, 20.0)[0] != HERE
    assert is_quiet()
    assert sum(thread.name == "lighterage-helper" for thread in threading.enumerate()) <= 8
    assert not issubclass(Overtaken, Exception), "`except Exception` lets it through"


def test_the_estimates_know_of_races(client):
    work.spin.prepare()
    work.spin(HERE, 20.0)
    (local, _) = work.spin.explain(HERE, 20.0).decision.predictions
    assert local.seconds > 1e-3, "it took longer than until it was stopped"
    assert lighterage.stats()

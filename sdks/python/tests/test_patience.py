"""A call waits for a node no longer than it may, and no node is asked again and again for what it cannot do."""

import asyncio
import gc
import os
import signal
import threading
import time
import weakref
from concurrent.futures import CancelledError

import numpy as np
import pytest

import work
from lighterage import DoesNotTravel, Limits, NodeRefused, TimeIsUp, offload, runtime
from lighterage.call import function as function_module
from lighterage.call import vain as vain_module
from lighterage.decide import Stages

plain = work.slow.__lighterage_function__


def is_slow_here(function, *args, seconds=30.0):
    """The estimates of a device that had better hand this call on."""
    for _ in range(3):
        runtime.current.engine.observe_local(function.function.name, function.function.sizes(args, {})[0], seconds)


def test_a_deadline_bounds_the_wait_for_a_deployment_which_goes_on(node, client):
    node.deploy_seconds = 1.0
    hasty = offload(plain).with_options(deadline=0.2)
    began = time.monotonic()
    with pytest.raises(TimeIsUp, match="goes on getting it"):
        hasty.remote(0.0)
    assert time.monotonic() - began < 0.9
    assert hasty.with_options(deadline=10.0).remote(0.0) != os.getpid()
    assert node.deployments == 1


def test_a_deployment_is_no_part_of_the_time_that_a_call_may_take(node, client, monkeypatch):
    monkeypatch.setattr(function_module, "SLACK_SECONDS", 0.1)
    node.deploy_seconds = 3.0
    assert offload(plain).with_options(limits=Limits(seconds=2.0)).remote(0.0) != os.getpid()


def test_a_call_runs_here_where_a_deployment_takes_too_long(node, client):
    node.deploy_seconds = 20.0
    fresh = offload(plain).with_options(race=False)
    is_slow_here(fresh, 0.0, seconds=2.0)
    quick = Stages(1e-4, 0.0, 1e-3, 1e-4, 1e-3, 0.0, 1e-4, 100, 100)
    runtime.current.engine.observe_remote("work:slow", node.name, fresh.function.sizes((0.0,), {})[0], quick, time.monotonic())
    began = time.monotonic()
    assert fresh(0.0) == os.getpid()
    assert time.monotonic() - began < 10.0
    failures = runtime.current.stats_of("work:slow").failures
    assert failures == {"L8005": 1}
    is_slow_here(fresh, 0.0, seconds=2.0)
    # The node has had so long by now that it may need as long again.
    assert next(one for one in fresh.explain(0.0).decision.predictions if one.place == node.name).wait > 1.0


def test_who_waits_for_a_deployment_can_be_cancelled(node, client):
    node.deploy_seconds = 20.0
    future = offload(plain).with_options(local=False).submit(0.0)
    deadline = time.monotonic() + 10.0
    while not future.cancel():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(CancelledError):
        future.result(5.0)
    assert future.cancelled()


def test_a_function_whose_results_do_not_travel_is_not_run_twice_for_ever(node, client, monkeypatch):
    monkeypatch.setattr(vain_module, "REST_SECONDS", 1.0)
    fresh = offload(work.lock.__lighterage_function__)
    is_slow_here(fresh)
    fresh.prepare()
    for _ in range(5):
        is_slow_here(fresh)
        fresh()
    assert node.calls == 2
    assert "its last calls on nodes came to nothing" in str(fresh.explain())
    time.sleep(1.0)
    is_slow_here(fresh)
    fresh()
    assert node.calls == 3
    with pytest.raises(DoesNotTravel):
        fresh.remote()


def test_one_result_that_does_not_travel_keeps_no_function_here(node, client):
    vain = vain_module.Vain()
    for now in range(10):
        vain.begin(float(now))
        assert not vain.is_resting(float(now))
        vain.end()
    vain.begin(10.0)
    vain.begin(10.0)
    assert vain.is_resting(14.0) and not vain.is_resting(15.0)
    vain.begin(12.0)
    assert not vain.is_resting(15.0), "what began before the rest does not make it longer"
    vain.begin(15.0)
    assert vain.is_resting(24.0) and not vain.is_resting(25.0)


def test_submit_awaits_an_async_function_wherever_it_runs(node, client):
    assert work.later.with_options(on="nowhere").submit(1).result(10.0) == (2, os.getpid())
    result, process = work.later.with_options(local=False).submit(2).result(10.0)
    assert result == 3 and process != os.getpid()


def test_an_awaited_call_runs_here_where_a_node_goes_silent(node, client):
    """It was awaited for as long as the function may take there: five minutes and more."""
    fresh = offload(work.later.__lighterage_function__)
    fresh.prepare()
    is_slow_here(fresh, 1, seconds=1.0)
    quick, size = Stages(1e-4, 0.0, 1e-3, 1e-4, 1e-3, 0.0, 1e-4, 100, 100), fresh.function.sizes((1,), {})[0]
    runtime.current.engine.observe_remote("work:later", node.name, size, quick, time.monotonic())
    node.delay = 60.0
    began = time.monotonic()
    assert asyncio.run(fresh(1)) == (2, os.getpid())
    assert node.calls == 1 and time.monotonic() - began < 20.0
    assert runtime.current.stats_of("work:later").failures == {"L8005": 1}


def test_an_awaited_result_that_does_not_travel_is_not_computed_twice_for_ever(node, client):
    """Each call ran on the node first: it was known to be quick, and its results were not known to be lost."""
    fresh = offload(work.later_lock.__lighterage_function__)
    fresh.prepare()
    for _ in range(5):
        is_slow_here(fresh)
        assert asyncio.run(fresh())[1] == threading.get_ident(), "in the loop of whoever awaits it"
    assert node.calls == 2
    assert "its last calls on nodes came to nothing" in str(fresh.explain())


def test_an_awaited_call_is_charged_as_any_other(node, client):
    """Tries of a node by `await` cost nothing by the books, so nothing ended them."""
    fresh = offload(work.later.__lighterage_function__)
    fresh.prepare()
    learnt = runtime.current.engine.work("work:later")
    for count, call in enumerate((lambda: fresh.submit(1).result(10.0), lambda: asyncio.run(fresh(1))), 1):
        is_slow_here(fresh, 1)
        assert call()[1] != os.getpid()
        assert (node.calls, learnt.calls) == (count, count)


def test_a_child_waits_for_no_lock_of_its_parents_threads(node, client):
    fresh = offload(plain)
    held, over = threading.Event(), threading.Event()

    def hold():
        with fresh.function.standing.lock:
            held.set()
            over.wait(10.0)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10.0)
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        fresh.function.made()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    over.set()
    thread.join()
    assert status == 0


def test_a_deployment_that_failed_keeps_no_arguments(node, client):
    node.refused_deployments = [(503, "L3013", False)]
    fresh, big = offload(work.total.__lighterage_function__), np.zeros(100_000)
    with pytest.raises(NodeRefused):
        fresh.remote(big)
    gone = weakref.ref(big)
    del big
    # The thread that deployed it has its last step to do.
    deadline = time.monotonic() + 10
    while gone() is not None:
        assert time.monotonic() < deadline
        gc.collect()
        time.sleep(0.01)
    assert fresh.remote(np.ones(3)) == 3.0


def test_a_node_that_cannot_take_a_function_for_now_is_not_asked_by_every_call(node, client, monkeypatch):
    # A busy machine may need longer for the calls than the node is left alone for.
    monkeypatch.setattr(function_module, "AGAIN_SECONDS", 60.0)
    node.refused_deployments = [(503, "L3013", True)] * 20
    fresh = offload(plain).with_options(race=False)
    for _ in range(6):
        is_slow_here(fresh, 0.0)
        assert fresh(0.0) == os.getpid()
    assert node.deployments == 1


def test_an_image_that_is_too_large_for_a_node_is_sent_once(node, client):
    node.refuses_images = True
    fresh = offload(plain).with_options(race=False)
    for _ in range(4):
        is_slow_here(fresh, 0.0)
        assert fresh(0.0) == os.getpid()
    assert node.uploads == 1
    with pytest.raises(NodeRefused, match="L2005"):
        fresh.remote(0.0)

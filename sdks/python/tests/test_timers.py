"""What is to be done later is done, whatever else waits for its turn."""

import threading

import pytest

import lighterage
import work
from lighterage import timers
from lighterage.places import runtime
from lighterage.timers import Timers


def test_what_is_due_in_a_thousand_years_keeps_nothing_else_from_being_done():
    """A wait longer than a condition takes once ended the thread, and no timer of the process ran any more."""
    later = Timers()
    later.after(1e12, lambda: None)
    for _ in range(5):
        done = threading.Event()
        later.after(0.01, done.set)
        assert done.wait(5)


def test_a_thread_that_cannot_be_started_is_started_for_the_next_one(monkeypatch):
    later, done, start = Timers(), threading.Event(), timers.background

    def refuse(action):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(timers, "background", refuse)
    with pytest.raises(RuntimeError):
        later.after(0.01, lambda: None)
    monkeypatch.setattr(timers, "background", start)
    later.after(0.01, done.set)
    assert done.wait(5)


def test_a_number_that_says_nothing_of_the_work_is_called_too(client):
    """From a seed of 1 to one of 123456789 the estimate is extrapolated to many years."""
    plan = work.nap.with_options(pure=True)
    plan.prepare()
    for _ in range(3):
        assert plan(1) == 1
    for seed in (123_456_789, 10**17):
        assert plan(seed) == seed
    lighterage.stats()
    done = threading.Event()
    runtime.current.timers.after(0.01, done.set)
    assert done.wait(5)

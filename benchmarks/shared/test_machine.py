"""What disturbed a benchmark."""

from __future__ import annotations

from shared.machine import processor_times, stolen


def test_what_the_host_took_is_a_part_of_what_was_wanted() -> None:
    then = processor_times("cpu  100 10 50 4000 9 0 5 20 30 0\ncpu0 1 1 1 1 1 1 1 1\n")
    now = processor_times("cpu  160 10 60 9000 9 0 5 50 90 0\ncpu0 1 1 1 1 1 1 1 1\n")
    assert now == (235, 50)
    assert stolen(then, now) == 0.3
    assert stolen(now, now) == 0
    assert stolen(now, then) == 0, "ticks that were taken back"
    worked, taken = processor_times()
    assert worked > 0
    assert taken >= 0

"""Decisions are told to the node, where somebody asked for it, and no call notices."""

import time

import lighterage
import work
from lighterage.places import reports, runtime

PATIENCE_SECONDS = 30.0


def told(node, count):
    """The decisions that the node was told. Calls go on until there are so many: a quick one follows the last decision."""
    until = time.monotonic() + PATIENCE_SECONDS
    while len(found := [one for report in node.told for one in report["decisions"]]) < count:
        assert time.monotonic() < until, f"{len(found)} of {count}"
        work.slow(0.02)
    return found


def left_out(node):
    return sum(report["left_out"] for report in node.told)


def test_nobody_is_told_unless_somebody_asked(client, node):
    assert runtime.current.reports is None
    work.slow(0.005)
    lighterage.report()
    lighterage.report(False)
    work.slow(0.005)
    assert runtime.current.reports is None and node.told == []


def test_a_node_is_told_what_was_expected_and_what_it_took(client, node):
    # Of a place that was never tried nothing is expected: both are, before anybody is told.
    work.slow.local(0.02)
    work.slow.remote(0.02)
    lighterage.report(device="kitchen-pi")
    found = told(node, 8)
    assert {report["device"] for report in node.told} == {"kitchen-pi"}
    assert {one["place"] for one in found} <= {"local", node.name}
    for one in found:
        assert one["function"].endswith("slow") and one["actual_us"] >= 20_000
        assert one["predicted_us"] > 0 and one["other"] in {"local", node.name} - {one["place"]}
        assert one["why"] in {choice.name.lower() for choice in lighterage.decide.Choice} and one["ago_ms"] >= 0
    assert left_out(node) == 0


def test_the_environment_asks_for_it_too(monkeypatch, node):
    monkeypatch.setenv("LIGHTERAGE_REPORT", "1")
    monkeypatch.setenv("LIGHTER_NODE", node.url)
    monkeypatch.setenv("LIGHTER_TOKEN", node.token)
    runtime.current.configure()
    runtime.current.hear(None, PATIENCE_SECONDS)
    assert told(node, 1)


def test_what_is_too_much_is_left_out_and_counted(client, node, monkeypatch):
    monkeypatch.setattr(reports, "WAITING_MAX", 3)
    lighterage.report()
    noted = told(node, 1)[0]
    decision = runtime.current.engine.decide(lighterage.decide.Question("f", 1.0, 1, [node.name], time.monotonic()))
    for _ in range(10):
        runtime.current.reports.note("f", noted["place"], decision, 0.001)
    until = time.monotonic() + PATIENCE_SECONDS
    while left_out(node) < 7:
        assert time.monotonic() < until
        # What was left out is told with the next report.
        work.slow(0.02)
    assert all(len(report["decisions"]) <= 3 for report in node.told)


def test_a_node_that_takes_no_reports_harms_nobody(client, node):
    node.told = None
    lighterage.report()
    until = time.monotonic() + PATIENCE_SECONDS
    while not runtime.current.reports._left_out:
        assert time.monotonic() < until
        assert isinstance(work.slow(0.02), int)
    assert set(runtime.current.reports._left_out) == {node.name}

"""The testbed in small: is the client slow, is the network as slow as it says, and is nothing left behind?"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import metrics
import record
import sweep
from lighterage.decide.replay import Oracle, play
from machines import Machines
from testbed import Testbed as Bed
from testbed import Unable

PROGRAM = Path(__file__).parents[2] / "target/release/lighter"
SHARE = 0.2


@pytest.fixture(scope="module")
def machines():
    if not PROGRAM.exists():
        pytest.skip(f"node: {PROGRAM} is not built")
    try:
        with Bed(SHARE) as testbed:
            testbed.rate(100)
            with Machines(testbed, str(PROGRAM)) as made:
                yield made
    except Unable as problem:
        pytest.skip(f"namespaces: the testbed: {problem}")
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert testbed.client not in left and testbed.node not in left and testbed.link not in left


def computed(pid):
    """Seconds of processor time that the process has had."""
    user, kernel = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(kernel)) / os.sysconf("SC_CLK_TCK")


def test_the_client_gets_its_share_and_no_more(machines):
    pid = machines._client.pid
    before = computed(pid)
    seconds = machines.ask(do="local", function="queens", n=9, times=150)["seconds"]
    # The clock of a process ticks each hundredth of a second.
    assert 0 < computed(pid) - before < 1.5 * SHARE * sum(seconds) + 0.02


def test_the_node_says_how_fast_it_is(machines):
    about = machines.ask(do="meet")
    assert about["speed"] > 0 and about["round_trip"] > 0


def test_a_network_of_ten_megabits_carries_ten_megabits(machines):
    machines.testbed.rate(10)
    asked = {"function": "logarithm", "n": 200, "times": 1, "round_trip": 1e-3}
    (took,) = machines.ask(do="remote", **asked)["seconds"]
    # 320 kB there and as much back.
    assert took > 0.4
    machines.testbed.rate(100)


def test_a_sweep_is_measured_once_and_gone_on_with(machines, tmp_path):
    plan = sweep.Plan(("multiplication",), (60,), (100,), ("json", "frame", "kept"), 2)
    cells = sweep.run(machines, plan, tmp_path / "sweep.jsonl")
    (row,) = metrics.rows(cells)
    frame, json = row.points["frame"][100], row.points["json"][100]
    assert row.local.mean > 0 and 0 < frame.share.mean < 1 and json.to_json == metrics.Estimate(1.0, 0.0)
    for point in (frame, json):
        assert sum(stage.mean for stage in point.stages.values()) == pytest.approx(point.seconds.mean, rel=0.05)
    lines = (tmp_path / "sweep.jsonl").read_text()
    assert sweep.run(machines, plan, tmp_path / "sweep.jsonl") == cells
    assert (tmp_path / "sweep.jsonl").read_text() == lines


def test_calls_are_recorded_replayed_and_decided_live(machines, tmp_path):
    scenario = record.Scenario("small", (record.Phase(4, 100), record.Phase(4, 20)))
    made = record.record(machines, scenario, 1, "test")
    assert [point.is_step for point in made.points] == [False] * 4 + [True] + [False] * 3
    assert all(point.probe for point in made.points) and made.speed > 1
    assert play(made, "oracle", Oracle()).regret == 0
    made.save(tmp_path / "made.json")
    again = record.taken_up(tmp_path / "made.json", scenario, "test")
    assert [point.function for point in again.points] == [point.function for point in made.points]
    assert record.taken_up(tmp_path / "made.json", scenario, "elsewhere") is None
    assert record.taken_up(tmp_path / "made.json", record.Scenario("longer", (record.Phase(9, 100),)), "test") is None
    (tmp_path / "cut.json").write_text((tmp_path / "made.json").read_text()[:100])
    assert record.taken_up(tmp_path / "cut.json", scenario, "test") is None
    answers = record.live(machines, scenario, 1)
    assert len(answers) == 8 and record.confirm(made, answers).accuracy >= 0

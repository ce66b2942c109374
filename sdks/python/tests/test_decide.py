"""The engine against worlds whose truth is known: what it chooses, what that costs, how soon it notices a change."""

import math
import random
from dataclasses import dataclass, field

import pytest

from lighterage.call.learn import stages_of
from lighterage.decide import LOCAL, Choice, Energy, Engine, Policy, Prediction, Question, Stages
from lighterage.decide.estimate import Curve, Guess, Level
from lighterage.decide.race import hedged, saving
from lighterage.places.wire import Reply


@dataclass
class World:
    """Cubic work on square matrices: this machine, a node that is faster, and the network between them."""

    seed: int
    bytes_per_second: float
    faster: float = 8.0
    load: float = 1.0
    noise: float = 0.05
    rng: random.Random = field(init=False)

    def __post_init__(self):
        self.rng = random.Random(self.seed)

    def vary(self):
        return math.exp(self.rng.gauss(0, self.noise))

    def call(self):
        n = self.rng.choice(range(200, 1_201, 100))
        size = n * n * 8
        work = 2e-10 * n**3
        transfer = size / self.bytes_per_second
        stages = Stages(
            1e-4 * self.vary(), transfer * self.vary(), 2e-3 * self.vary(), 1e-4 * self.vary(),
            work / self.faster * self.load * self.vary(), transfer * self.vary(), 1e-4 * self.vary(), size, size,
        )  # fmt: skip
        return size, work * self.vary(), stages


def total(stages):
    return stages.encode + stages.up + stages.round_trip + stages.queue + stages.run + stages.down + stages.decode


@dataclass
class Played:
    right: int = 0
    judged: int = 0
    cost: float = 0.0
    oracle: float = 0.0
    penalties: list = field(default_factory=list)

    @property
    def regret(self):
        return self.cost / self.oracle - 1


def play(world, engine, calls, now=0.0):
    played = Played()
    engine.place("node", speed=6.0)
    for _ in range(calls):
        size, here, stages = world.call()
        there = total(stages)
        decision = engine.decide(Question("f", size, size, ["node"], now))
        took, other = (here, there) if decision.place == LOCAL else (there, here)
        played.cost += took
        played.oracle += min(here, there)
        if abs(math.log(here / there)) > 0.1:
            played.judged += 1
            played.right += took < other
            if took > other:
                played.penalties.append(took / other)
        now += took + 0.05
        if decision.place == LOCAL:
            engine.observe_local("f", size, here, decision)
        else:
            engine.observe_remote("f", "node", size, stages, now, decision=decision)
    return played


@pytest.mark.parametrize("rate", [1e6, 2e6, 5e6, 1e7, 2e7, 5e7])
def test_decisions_are_right_and_cheap_when_nothing_changes(rate):
    for seed in range(5):
        played = play(World(seed, rate), Engine(), 300)
        assert played.right >= 0.95 * played.judged
        assert played.regret <= 0.05, (seed, played.regret)


@pytest.mark.parametrize(("before", "after"), [(5e7, 2e6), (2e6, 5e7)])
def test_a_step_of_the_rate_costs_little(before, after):
    for seed in range(5):
        world, engine = World(seed, before), Engine()
        play(world, engine, 100)
        world.bytes_per_second = after
        played = play(world, engine, 100, now=100.0)
        assert played.regret <= 0.15, (seed, played.regret)


def test_a_loaded_node_is_left_alone_after_at_most_three_calls():
    for seed in range(5):
        world, engine = World(seed, 5e7), Engine()
        play(world, engine, 100)
        world.load = 20.0
        played = play(world, engine, 50, now=100.0)
        assert len(played.penalties) <= 3, (seed, played.penalties)


def test_the_first_call_follows_the_benchmark():
    engine = Engine()
    engine.place("slow", speed=0.2)
    assert engine.decide(Question("f", 8e6, 8e6, ["slow"], 0.0)).place == LOCAL


def test_a_deadline_prefers_what_is_sure():
    engine = Engine()
    world = World(1, 5e7)
    play(world, engine, 50)
    size, _, _ = world.call()
    decision = engine.decide(Question("f", size, size, ["node"], 50.0, deadline=1e-6))
    assert decision.choice is Choice.DEADLINE
    assert decision.chosen.p95 == min(prediction.p95 for prediction in decision.predictions)


def test_without_a_local_way_the_only_node_is_taken():
    decision = Engine().decide(Question("f", 1.0, 1.0, ["node"], 0.0, may_run_here=False))
    assert (decision.place, decision.choice) == ("node", Choice.ONLY)


def test_the_place_taken_before_stays_until_another_is_clearly_better():
    """Hysteresis: two places that take about as long are not exchanged by each small difference."""

    def decided(policy, here, there):
        """Where a call is run that takes so long, after some that were a quarter longer on the node."""
        engine = Engine(policy)
        for local in (1.0, here):
            for at in range(60):
                node = 1.25 if local == 1.0 else there
                engine.observe_local("f", 100.0, local)
                stages = Stages(1e-6, 0.0, 1e-6, 1e-6, node, 0.0, 1e-6, 100, 100)
                engine.observe_remote("f", "node", 100.0, stages, float(at))
            decision = engine.decide(Question("f", 100.0, 100, ["node"], 60.0))
        return decision

    # By 2 % sooner on the node: it stays here, as before.
    kept = decided(Policy(hysteresis=0.03, explore_budget=0.0), 1.0201, 1.0)
    assert (kept.place, kept.choice) == (LOCAL, Choice.KEPT)
    assert kept.predictions[1].seconds < kept.predictions[0].seconds
    assert decided(Policy(hysteresis=0.0, explore_budget=0.0), 1.0201, 1.0).place == "node"
    gone = decided(Policy(hysteresis=0.03, explore_budget=0.0), 1.3, 1.0)
    assert (gone.place, gone.choice) == ("node", Choice.BEST)


def test_several_nodes_are_told_apart():
    """Of three nodes the soonest is taken, each by its own network and speed; one that slows down is passed over."""
    engine, now = Engine(Policy(explore_budget=0.0)), 0.0
    runs = {"slow": 0.5, "quick": 0.1, "far": 0.1}
    transfers = {"slow": 0.01, "quick": 0.01, "far": 0.9}

    def call(size, count=1):
        nonlocal now
        for _ in range(count):
            engine.observe_local("f", size, size / 1e6)
            for name, run in runs.items():
                transfer = transfers[name] * size / 1e6
                stages = Stages(1e-4, transfer, None, 1e-4, run * size / 1e6, transfer, 1e-4, int(size), int(size))
                engine.observe_remote("f", name, size, stages, now)
            now += 0.1

    for size in (1e6, 2e6, 4e6):
        call(size, 4)
    for size in (1e6, 3e6, 4e6):
        decision = engine.decide(Question("f", size, size, runs, now))
        assert [known.place for known in decision.predictions] == [LOCAL, *runs]
        for known in decision.predictions[1:]:
            truth = (runs[known.place] + 2 * transfers[known.place]) * size / 1e6
            assert known.seconds == pytest.approx(truth, rel=0.15)
        assert decision.place == "quick"
    runs["quick"] = 3.0
    call(2e6, 3)
    assert engine.decide(Question("f", 2e6, 2e6, runs, now)).place == "slow"
    engine.forget("slow")
    assert engine.decide(Question("f", 2e6, 2e6, ["far", "quick"], now)).place == LOCAL, (
        "the two that are left take longer than here"
    )


def test_a_node_that_was_never_called_is_known_by_another_one():
    """How work grows was seen on one node; of the other only its benchmark is known."""
    engine = Engine(Policy(explore_budget=0.0))
    engine.place("old", speed=1.0)
    engine.place("new", speed=4.0)
    for size in (1e5, 1e6, 4e6):
        for at in range(4):
            engine.observe_local("f", size, size**1.5 / 1e9)
            stages = Stages(1e-5, 0.0, 1e-3, 1e-5, size**1.5 / 1e9, 0.0, 1e-5, 100, 100)
            engine.observe_remote("f", "old", size, stages, float(at))
    _, old, new = engine.predict(Question("f", 1e6, 100, ["old", "new"], 4.0))
    assert old.stage("run") == pytest.approx(1e6**1.5 / 1e9, rel=0.25)
    assert new.stage("run") == pytest.approx(old.stage("run") / 4, rel=0.35)
    assert new.spread / new.seconds > old.spread / old.seconds


def test_exploring_stays_within_its_budget():
    world, engine = World(3, 1e6), Engine(Policy(explore_budget=0.02))
    play(world, engine, 500)
    assert engine._explored_seconds <= 0.03 * engine._total_seconds + 1.0


def test_a_level_follows_a_step_at_once_and_noise_hardly():
    level = Level(1.0, 1.0, 1e-4)
    rng = random.Random(1)
    for second in range(50):
        level.observe(10 * math.exp(rng.gauss(0, 0.05)), float(second))
    assert 9.5 < level.guess(50.0).middle < 10.5
    level.observe(1.0, 51.0)
    assert level.guess(51.0).middle < 1.2


def test_a_level_grows_unsure_with_time():
    level = Level(1.0, 1.0, 1e-2)
    level.observe(5.0, 0.0)
    level.observe(5.0, 1.0)
    assert level.guess(100.0).variance > level.guess(1.0).variance


@pytest.mark.parametrize("power", [0.5, 1.0, 1.5, 2.0])
def test_a_curve_learns_the_power(power):
    curve = Curve(0.0, 1.0, 9.0, 0.25)
    rng = random.Random(2)
    for _ in range(40):
        size = rng.uniform(1e4, 1e7)
        curve.observe(size, 1e-9 * size**power * math.exp(rng.gauss(0, 0.03)))
    for size in (2e4, 5e5, 9e6):
        assert curve.guess(size).middle == pytest.approx(1e-9 * size**power, rel=0.1)


def test_work_may_grow_with_a_number_as_fast_as_it_likes():
    """As the queens' problem does: four to five times for each queen more."""
    curve = Curve(0.0, 1.0, 9.0, 0.25, is_work=True)
    for queens in (6, 7, 8, 7, 6, 8):
        curve.observe(queens, 1e-3 * 4.5 ** (queens - 6))
    assert curve.guess(9).middle == pytest.approx(1e-3 * 4.5**3, rel=0.5)


def test_a_result_that_stayed_here_says_what_an_answer_would_bring():
    engine = Engine()
    engine.place("node")
    down = [engine.predict(Question("f", 1e6, 1e6, ["node"], 0.0))[1].stage("down")]
    engine.observe_result("f", 1e6, 1e3)
    down.append(engine.predict(Question("f", 1e6, 1e6, ["node"], 0.0))[1].stage("down"))
    assert down[1] < down[0] / 100, "until then it may be as long as the arguments"
    assert not engine.knows_result("f")
    engine.observe_remote("f", "node", 1e6, Stages(1e-3, 0.1, 1e-3, 1e-4, 0.1, 0.01, 1e-3, 1_000_000, 100_000), 0.0)
    assert engine.knows_result("f"), "what an answer has brought is known better"
    assert engine.predict(Question("f", 1e6, 1e6, ["node"], 0.0))[1].stage("down") > 10 * down[1]


def test_what_only_varies_is_not_hoped_to_be_better():
    known, unknown = (Prediction(LOCAL, ("run",), (Guess(0.0, 0.1, noise),), Energy()) for noise in (0.1, 0.0))
    assert known.spread == unknown.spread
    assert known.hoped(1.0) == pytest.approx(known.seconds)
    assert unknown.hoped(1.0) < 0.8 * unknown.seconds


def test_times_too_short_to_be_measured_do_not_shape_what_long_ones_take():
    """On a slow client what takes microseconds takes a millisecond where it has to wait for its turn."""
    expected = []
    for seed in range(100):
        engine, rng = Engine(), random.Random(seed)
        engine.helper_seconds = 3e-4
        for _ in range(6):
            size = rng.choice((8e4, 3e5, 7e5))
            engine.observe_local("f", size, rng.choice((4e-10 * size, 1e-3, 2e-3)))
        expected.append(engine.predict(Question("f", 1.3e6, 1e6, [], 0.0))[0].seconds)
    assert max(expected) < 0.1


def test_a_curve_remembers_sizes_that_do_not_follow_its_power():
    curve = Curve(0.0, 1.0, 9.0, 0.25)
    rng = random.Random(4)
    seconds = {1e4: 1e-3, 1e5: 1.2e-3, 1e6: 9e-3, 1e7: 0.3}
    for size in sorted(seconds) * 6:
        curve.observe(size, seconds[size] * math.exp(rng.gauss(0, 0.03)))
    for size, truth in seconds.items():
        assert curve.guess(size).middle == pytest.approx(truth, rel=0.15)


def test_a_first_time_that_was_long_is_not_believed_for_long():
    curve = Curve(0.0, 1.0, 9.0, 0.25)
    for value in (0.5, 0.1, 0.1):
        curve.observe(1e6, value)
    assert curve.guess(1e6).middle == pytest.approx(0.1, rel=0.3)


def test_who_is_known_less_is_blamed_for_a_call_that_was_late():
    def slower(late, other):
        """How many times slower `other` is expected to be on the node after a call of `late` was given up there."""
        world, engine = World(5, 5e7), Engine()
        play(world, engine, 60)
        size, here, _ = world.call()
        engine.observe_local("new", size, here)
        there = {of: engine.predict(Question(of, size, size, ["node"], 60.0))[1] for of in ("f", "new")}
        engine.observe_remote_longer(late, size, there[late], 100 * there[late].seconds, 60.0)
        return engine.predict(Question(other, size, size, ["node"], 60.0))[1].seconds / there[other].seconds

    assert slower("f", "new") > 2 * slower("new", "f")
    assert slower("new", "new") > slower("new", "f")


def test_a_place_whose_only_time_was_long_by_chance_is_tried_again():
    """Here the first call took five times as long as the others would, so that another might cost twice the node's time."""
    engine, places = Engine(), []
    stages = Stages(1e-3, 8e-3, None, 1e-4, 1e-3, 1e-3, 1e-3, 100_000, 1_000)
    engine.observe_local("f", 1e5, 25e-3)
    for at in range(3):
        engine.observe_remote("f", "node", 1e5, stages, 0.1 * at)
    for at in range(150):
        decision = engine.decide(Question("f", 1e5, 1e5, ["node"], 1 + 0.1 * at))
        places.append(decision.place)
        if decision.place == LOCAL:
            engine.observe_local("f", 1e5, 5e-3, decision)
        else:
            engine.observe_remote("f", "node", 1e5, stages, 1 + 0.1 * at, decision=decision)
    assert places[0] == "node" and places[-50:] == [LOCAL] * 50


def decided(energy, local, stages):
    """The place that is chosen once both are well known."""
    engine = Engine(Policy(energy=energy))
    for at in range(12):
        engine.observe_local("f", 1e6, local)
        engine.observe_remote("f", "node", 1e6, stages, 0.1 * at)
    found = engine.decide(Question("f", 1e6, stages.bytes_up, ["node"], 2.0))
    return found.place, {prediction.place: prediction for prediction in found.predictions}


def test_a_weight_of_energy_flips_the_choice():
    # A little slower there; but here the processor draws 5 W all the time, there this machine mostly waits.
    waits = Stages(0.01, 0.2, 0.002, 0.001, 1.0, 0.05, 0.01, 1_000_000, 200_000)
    assert decided(Energy(), 1.0, waits)[0] == LOCAL
    place, known = decided(Energy(compute=5.0, radio=1.5, wait=0.5, weight=0.2), 1.0, waits)
    assert place == "node"
    assert known[LOCAL].joules == pytest.approx(5.0, rel=0.1)
    assert known["node"].joules == pytest.approx(5 * 0.02 + 1.5 * 0.25 + 0.5 * 1.0, rel=0.2)
    # The other way round: a little sooner there, but by a radio that draws more than the processor.
    sends = Stages(0.01, 0.5, 0.002, 0.001, 0.1, 0.2, 0.01, 1_000_000, 400_000)
    assert decided(Energy(), 1.0, sends)[0] == "node"
    assert decided(Energy(compute=1.0, radio=4.0, wait=0.5, weight=1.0), 1.0, sends)[0] == LOCAL


def test_a_bound_teaches_what_it_says():
    def curve(sigma=0.05):
        made, rng = Curve(0.0, 1.0, 9.0, 0.25), random.Random(3)
        for _ in range(10):
            made.observe(1e6, 0.1 * math.exp(rng.gauss(0, sigma)))
        return made

    for bound, low, high in ((0.01, 0.099, 0.101), (0.1, 0.098, 0.11), (1.0, 0.9, 1.5)):
        made = curve()
        before = made.guess(1e6).middle
        made.observe_longer(1e6, bound)
        assert low * before / 0.1 <= made.guess(1e6).middle <= high * before / 0.1, bound


def test_bounds_and_times_in_any_order_leave_a_curve_that_is_unsure():
    """A bound once made the variance at other sizes negative: then a call that took longer moved the curve down."""
    for seed in range(200):
        curve, rng = Curve(0.0, 1.0, 9.0, 0.25, is_work=True), random.Random(seed)
        for _ in range(30):
            size, value = rng.choice((1e2, 1e4, 1e6, 1e7)), math.exp(rng.gauss(-3, 1.5))
            (curve.observe if rng.random() < 0.5 else curve.observe_longer)(size, value)
            for other in (1.0, 1e3, 1e5, 1e9):
                x = curve._x(other)
                assert curve._paa + 2 * x * curve._pab + x * x * curve._pbb > 0


def test_a_guess_beyond_a_bound_is_surer():
    wide = Guess(math.log(0.001), 4.0)
    known = wide.beyond(1.0)
    assert 1.0 < known.middle < 5.0 and known.variance < wide.variance
    assert wide.beyond(1e-6).middle == pytest.approx(wide.middle, rel=0.02)


def test_knowing_the_better_place_is_worth_most_where_nobody_knows():
    def saved(here, there):
        engine = Engine()
        for _ in range(8):
            engine.observe_local("f", 1e6, here)
            stages = Stages(1e-3, there, 1e-3, 1e-4, 1e-3, 1e-3, 1e-4, 1_000_000, 1_000)
            engine.observe_remote("f", "node", 1e6, stages, 1.0)
        local, remote = engine.predict(Question("f", 1e6, 1e6, ["node"], 1.0))
        return saving(min(local, remote, key=lambda one: one.seconds), max(local, remote, key=lambda one: one.seconds))

    assert saved(0.5, 0.5) > 10 * max(saved(0.1, 0.5), saved(0.5, 0.1))


def test_a_nobody_is_raced_once_and_a_hermit_never():
    engine = Engine()
    engine.place("node")
    first = engine.decide(Question("f", 1e4, 1e4, ["node"], 0.0, may_race=True))
    assert (first.place, first.choice, first.rival) == (LOCAL, Choice.RACED, "node")
    assert engine.decide(Question("f", 1e4, 1e4, ["node"], 0.0)).rival is None
    for _ in range(2):
        engine.observe_held("f", True)
    engine.observe_local("f", 1e4, 0.5, first)
    assert engine.decide(Question("f", 1e4, 1e4, ["node"], 0.0, may_race=True)).choice is not Choice.RACED
    engine.observe_held("f", False)
    assert engine.work("f").holds is False


def kept_waiting(here, there, holds, spread=0.1):
    """Decides on a function that takes so long at both places, and of which it is known whether it keeps the interpreter."""
    engine, rng = Engine(Policy(race_budget=0.0)), random.Random(1)
    for at in range(40):
        engine.observe_local("f", 1e6, here * math.exp(rng.gauss(0, 0.02)))
        run = there * math.exp(rng.gauss(0, spread))
        engine.observe_remote("f", "node", 1e6, Stages(1e-4, 1e-3, None, 1e-4, run, 1e-4, 1e-4, 1_000_000, 1_000), 0.1 * at)
    for _ in range(2):
        engine.observe_held("f", holds)
    return engine.decide(Question("f", 1e6, 1e6, ["node"], 4.0, may_race=True))


def test_a_late_call_is_begun_here_before_twice_its_time_here_have_passed():
    """What keeps the interpreter takes both times then. So it is sent to a node that is clearly better, and no other."""
    assert kept_waiting(1.0, 0.9, holds=False).place == "node"
    assert kept_waiting(1.0, 0.9, holds=True).place == LOCAL, "one of many would be late"
    clear = kept_waiting(1.0, 0.3, holds=True)
    assert clear.place == "node" and clear.rival == LOCAL
    assert clear.rival_after == pytest.approx(0.8, rel=0.05)


def test_what_a_hedged_call_takes_is_the_mean_over_all_that_may_come():
    (_, there) = kept_waiting(1.0, 0.5, holds=False, spread=0.4).predictions
    deviation = math.sqrt(there.log_variance)
    rng = random.Random(7)
    draws = [there.middle * math.exp(rng.gauss(0, deviation)) for _ in range(100_000)]
    for after in (0.2, 0.5, 0.9):
        mean = sum(one if one < after else after + 1.0 for one in draws) / len(draws)
        assert hedged(there, after, 1.0) == pytest.approx(mean, rel=0.01)
    assert hedged(there, 0.0, 1.0) == 1.0, "at once it begins here"


def test_the_stages_of_a_call_are_all_of_its_time():
    """A large transfer's round trip cannot be told from it, but takes its time: on a network of 40 ms that was left out."""
    headers = {"server-timing": "run;dur=100, queue;dur=10"}
    reply = Reply(200, headers, memoryview(bytes(100)), began_at=1.0, head_at=1.3, whole_at=1.35)
    for bytes_up in (1_000, 1_000_000):
        stages = stages_of(reply, (0.02, 0.03), bytes_up, 0.04)
        assert stages.seconds == pytest.approx(0.02 + 0.35 + 0.03)
    assert stages.up == pytest.approx(0.15) and stages.round_trip is None

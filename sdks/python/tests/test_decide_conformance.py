"""The engine decides as contracts/conformance/decide has it, step by step; with LIGHTER_UPDATE=1 it writes the records."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from lighterage.decide import Choice, Decision, Energy, Engine, Policy, Prediction, Question, Stages
from lighterage.decide.engine import alone
from lighterage.decide.replay import EngineChooser, Record, play, synthetic

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "contracts/conformance/decide"
RECORDS = Path(__file__).parent / "records"

Step = dict[str, Any]

USUAL = Policy()


class Recorder(Engine):
    """An engine that writes down what it is told and asked, and what it decided."""

    def __init__(self, policy: Policy = USUAL) -> None:
        super().__setattr__("steps", [])
        self._decisions: list[Decision] = []
        super().__init__(policy)

    steps: list[Step]

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "helper_seconds" and hasattr(self, "_races"):
            self.steps.append({"do": "helper", "seconds": value})
        super().__setattr__(name, value)

    def _at(self, decision: Decision | None) -> int | None:
        return None if decision is None else next(at for at, one in enumerate(self._decisions) if one is decision)

    def decide(self, question: Question) -> Decision:
        decision = super().decide(question)
        self.steps.append({"do": "decide", **asdict(question), "expected": _said(decision)})
        self._decisions.append(decision)
        return decision

    def observe_local(
        self, function: str, size: float, seconds: float, decision: Decision | None = None, is_disturbed: bool = False
    ) -> None:
        of = {"decision": self._at(decision), "is_disturbed": is_disturbed}
        self.steps.append({"do": "local", "function": function, "size": size, "seconds": seconds, **of})
        super().observe_local(function, size, seconds, decision, is_disturbed)

    def observe_result(self, function: str, size: float, bytes_: float) -> None:
        self.steps.append({"do": "result", "function": function, "size": size, "bytes": bytes_})
        super().observe_result(function, size, bytes_)

    def observe_remote(self, function: str, name: str, size: float, stages: Stages, now: float, **more: Any) -> None:
        of = {"decision": self._at(more.get("decision")), "is_disturbed": more.get("is_disturbed", False)}
        step = {"do": "remote", "function": function, "name": name, "size": size, "stages": asdict(stages), "now": now}
        self.steps.append({**step, **of})
        super().observe_remote(function, name, size, stages, now, **more)

    def observe_local_longer(self, function: str, size: float, seconds: float) -> None:
        self.steps.append({"do": "local longer", "function": function, "size": size, "seconds": seconds})
        super().observe_local_longer(function, size, seconds)

    def observe_remote_longer(self, function: str, size: float, prediction: Prediction, seconds: float, now: float) -> None:
        at = next(at for at, one in enumerate(self._decisions) if prediction in one.predictions)
        step = {"do": "remote longer", "function": function, "size": size, "decision": at, "name": prediction.place}
        self.steps.append({**step, "seconds": seconds, "now": now})
        super().observe_remote_longer(function, size, prediction, seconds, now)

    def observe_stopped(self, function: str, is_stopped: bool) -> None:
        self.steps.append({"do": "stopped", "function": function, "is": is_stopped})
        super().observe_stopped(function, is_stopped)

    def observe_held(self, function: str, is_held: bool) -> None:
        self.steps.append({"do": "held", "function": function, "is": is_held})
        super().observe_held(function, is_held)

    def observe_raced(self, function: str, decision: Decision, winner: str, there_seconds: float, extra_seconds: float) -> None:
        step = {"do": "raced", "function": function, "decision": self._at(decision), "winner": winner}
        self.steps.append({**step, "there_seconds": there_seconds, "extra_seconds": extra_seconds})
        super().observe_raced(function, decision, winner, there_seconds, extra_seconds)

    def forget(self, name: str) -> None:
        self.steps.append({"do": "forget", "name": name})
        super().forget(name)

    def put(self, name: str, speed: float, round_trip: float, bytes_per_second: float) -> None:
        """Makes a place."""
        step = {"do": "place", "name": name, "speed": speed, "round_trip": round_trip, "bytes_per_second": bytes_per_second}
        self.steps.append(step)
        self.place(name, speed, round_trip, bytes_per_second)

    def probe(self, name: str, bytes_per_second: float, now: float) -> None:
        """A probe has measured a place's rate."""
        self.steps.append({"do": "probe", "name": name, "bytes_per_second": bytes_per_second, "now": now})
        self.place(name).observe_probe(bytes_per_second, now)

    def sent(self, name: str, bytes_: int, seconds: float, now: float) -> None:
        """So much of a request had gone up when it was given up."""
        self.steps.append({"do": "sent", "name": name, "bytes": bytes_, "seconds": seconds, "now": now})
        self.place(name).observe_transfer((bytes_, seconds), None, now)


def _said(decision: Decision) -> Step:
    """What another engine must say too."""
    numbers = ("seconds", "spread", "doubt", "joules", "best_case")
    predictions = [{name: _digits(getattr(one, name)) for name in numbers} for one in decision.predictions]
    said: Step = {"place": decision.place, "choice": decision.choice.name, "doubt": _digits(decision.doubt)}
    if decision.rival is not None:
        said.update(rival=decision.rival, rival_after=_digits(decision.rival_after))
    return {**said, "predictions": predictions}


def _digits(number: float) -> float:
    """What is compared to one part in 10⁹ needs no more."""
    return float(f"{number:.11g}")


class _Places:
    """The recorder's place as the player knows it: what it is told is written down."""

    def __init__(self, recorder: Recorder, name: str) -> None:
        self._recorder, self._name = recorder, name

    def observe_probe(self, bytes_per_second: float, now: float) -> None:
        self._recorder.probe(self._name, bytes_per_second, now)

    def observe_transfer(self, up: tuple[int, float], down: None, now: float) -> None:
        self._recorder.sent(self._name, up[0], up[1], now)


class _Player(EngineChooser):
    """The chooser of a replay, whose engine is a recorder."""

    def __init__(self, record: Record, races: bool, recorder: Recorder) -> None:
        super().__init__(record, races, recorder)
        recorder.steps.insert(0, {"do": "place", "name": "node", "speed": record.speed, "round_trip": record.round_trip})
        recorder.steps[0]["bytes_per_second"] = 12.5e6

        class Told:
            """The recorder, but for its places."""

            def __getattr__(self, name: str) -> Any:
                return getattr(recorder, name)

            def __setattr__(self, name: str, value: Any) -> None:
                setattr(recorder, name, value)

            def place(self, name: str) -> Any:
                return _Places(recorder, name)

        self.engine = Told()  # type: ignore[assignment]


def _played(record: Record, calls: int, races: bool = True, policy: Policy = USUAL) -> Recorder:
    recorder = Recorder(policy)
    play(replace(record, points=record.points[:calls]), "recorded", _Player(record, races, recorder))
    return recorder


def _nodes() -> Recorder:
    """Three nodes, deadlines, functions that are not there yet, calls that failed, and a node that goes."""
    recorder, rng, now = Recorder(), random.Random(7), 0.0
    for name, speed, rate in (("near", 4.0, 12e6), ("far", 20.0, 1e6), ("slow", 0.5, 40e6)):
        recorder.put(name, speed, rng.uniform(5e-4, 3e-2), rate)
        recorder.probe(name, rate * rng.uniform(0.8, 1.2), now)
    for turn in range(140):
        now += rng.choice([0.01, 0.2, 20.0])
        function = rng.choice(["small", "large"])
        size = rng.choice([200.0, 5_000.0, 300_000.0, 3e6]) if function == "large" else float(rng.randrange(1, 400))
        names = ["near", "far"] if turn >= 100 else ["near", "far", "slow"]
        names = [] if turn % 25 == 24 else names
        if turn == 100:
            recorder.forget("slow")
        question = Question(function, size, size + 128, names, now, may_race=rng.random() < 0.5)
        question.deadline = rng.choice([None, None, 0.01, 0.2])
        question.may_run_here = not names or rng.random() < 0.9
        question.waits = {"far": 0.5} if turn < 20 else {}
        question.is_disturbed = rng.random() < 0.1
        decision = recorder.decide(question)
        seconds = 2e-8 * size**1.1 * rng.lognormvariate(0, 0.2) * (1.0 if function == "large" else 5e3)
        if decision.place == "local":
            recorder.observe_local(function, size, seconds, decision, question.is_disturbed)
            recorder.observe_result(function, size, size / 2)
        elif rng.random() < 0.1:
            late = decision.chosen.seconds * rng.choice([0.5, 4.0])
            recorder.observe_remote_longer(function, size, decision.chosen, alone(late, 0.0), now)
            recorder.observe_local_longer(function, size, late)
        else:
            stages = Stages(1e-4, size / 1e7, rng.choice([None, 2e-3]), 2e-4, seconds / 4, 1e-4, 1e-4, int(size) + 200, 900)
            recorder.observe_remote(function, decision.place, size, stages, now, decision=decision)
    return recorder


def _write() -> None:
    load = Record.load
    frugal = Policy(hysteresis=0.1, explore_budget=0.1, race_budget=0.0, energy=Energy(weight=0.5))
    cases = {
        "testbed-100-mbit": _played(load(RECORDS / "testbed-100-mbit.json"), 150),
        "testbed-10-mbit-one-place": _played(load(RECORDS / "testbed-10-mbit.json"), 100, races=False),
        "testbed-bandwidth-steps": _played(load(RECORDS / "testbed-bandwidth-steps.json"), 225),
        "testbed-load-steps": _played(load(RECORDS / "testbed-load-steps.json"), 225),
        "synthetic-load-steps": _played(synthetic(3, [1e8], 200, loads=[1.0, 10.0, 1.0]), 200),
        "energy": _played(synthetic(5, [2e7, 1e8], 120), 120, policy=frugal),
        "nodes": _nodes(),
    }
    FOLDER.mkdir(exist_ok=True)
    for name, recorder in cases.items():
        lines = ",\n".join(json.dumps(_short(step), separators=(",", ":")) for step in recorder.steps)
        policy = json.dumps(asdict(recorder.policy))
        (FOLDER / f"{name}.json").write_text(f'{{"policy": {policy}, "steps": [\n{lines}\n]}}\n')


def _short(value: Any) -> Any:
    """Without what is as usual; numbers keep all of their digits, for what follows rests on them."""
    if isinstance(value, dict):
        return {key: _short(inner) for key, inner in value.items() if inner is not None and inner is not False}
    return [_short(inner) for inner in value] if isinstance(value, list | tuple) else value


if os.environ.get("LIGHTER_UPDATE"):
    _write()


class _Replayed:
    """An engine that is told what a record has."""

    def __init__(self, policy: Step) -> None:
        energy = Energy(**policy.pop("energy"))
        self.engine = Engine(Policy(**policy, energy=energy))
        self.decisions: list[Decision] = []

    def step(self, step: Step) -> None:
        do: dict[str, Callable[[Step], None]] = {
            "place": self._place,
            "forget": lambda s: self.engine.forget(s["name"]),
            "helper": lambda s: setattr(self.engine, "helper_seconds", s["seconds"]),
            "probe": lambda s: self.engine.place(s["name"]).observe_probe(s["bytes_per_second"], s["now"]),
            "sent": lambda s: self.engine.place(s["name"]).observe_transfer((s["bytes"], s["seconds"]), None, s["now"]),
            "decide": self._decide,
            "local": lambda s: self.engine.observe_local(
                s["function"], s["size"], s["seconds"], self._of(s), s.get("is_disturbed", False)
            ),
            "result": lambda s: self.engine.observe_result(s["function"], s["size"], s["bytes"]),
            "remote": self._remote,
            "local longer": lambda s: self.engine.observe_local_longer(s["function"], s["size"], s["seconds"]),
            "remote longer": self._remote_longer,
            "stopped": lambda s: self.engine.observe_stopped(s["function"], s.get("is", False)),
            "held": lambda s: self.engine.observe_held(s["function"], s.get("is", False)),
            "raced": lambda s: self.engine.observe_raced(
                s["function"], self.decisions[s["decision"]], s["winner"], s["there_seconds"], s["extra_seconds"]
            ),
        }
        do[step["do"]](step)

    def _place(self, step: Step) -> None:
        self.engine.place(step["name"], step["speed"], step["round_trip"], step["bytes_per_second"])

    def _of(self, step: Step) -> Decision | None:
        return None if step.get("decision") is None else self.decisions[step["decision"]]

    def _decide(self, step: Step) -> None:
        asked = {key: value for key, value in step.items() if key not in ("do", "expected")}
        asked["may_run_here"] = step.get("may_run_here", False)
        decision = self.engine.decide(Question(**asked))
        self.decisions.append(decision)
        said, wanted = _said(decision), step["expected"]
        for key in ("place", "choice", "rival"):
            assert said.get(key) == wanted.get(key), (len(self.decisions), key)
        assert decision.choice in Choice
        for one, other in zip(said.pop("predictions"), wanted["predictions"], strict=True):
            assert one == pytest.approx(other, rel=1e-9, abs=1e-12)
        assert said.get("rival_after", 0.0) == pytest.approx(wanted.get("rival_after", 0.0), rel=1e-9, abs=1e-12)

    def _remote(self, step: Step) -> None:
        stages = Stages(**{"round_trip": None, **step["stages"]})
        more = {"decision": self._of(step), "is_disturbed": step.get("is_disturbed", False)}
        self.engine.observe_remote(step["function"], step["name"], step["size"], stages, step["now"], **more)

    def _remote_longer(self, step: Step) -> None:
        predictions = self.decisions[step["decision"]].predictions
        prediction = next(one for one in predictions if one.place == step["name"])
        self.engine.observe_remote_longer(step["function"], step["size"], prediction, step["seconds"], step["now"])


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.json")), ids=lambda file: file.stem)
def test_choices_are_those_of_the_contract(file: Path) -> None:
    case = json.loads(file.read_text())
    replayed = _Replayed(case["policy"])
    for step in case["steps"]:
        replayed.step(step)
    assert len(replayed.decisions) >= 100


def test_the_records_have_every_choice_and_races() -> None:
    texts = [file.read_text() for file in FOLDER.glob("*.json")]
    assert len(texts) == 7
    for choice in Choice:
        assert any(f'"choice":"{choice.name}"' in text for text in texts), choice
    assert any('"do":"raced"' in text for text in texts)

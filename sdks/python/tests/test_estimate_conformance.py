"""Levels and curves say after each observation what contracts/conformance/estimate has."""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lighterage.decide.estimate import Curve, Guess, Level

FOLDER = Path(__file__).parents[3] / "contracts/conformance/estimate"
STEPS = 60

Case = dict[str, Any]


def _make(of: Case) -> Level | Curve:
    if of["kind"] == "level":
        return Level(of["prior"], of["variance"], of["drift"])
    return Curve(None, of["slope"], of["variance"], of["slope_variance"])


def _guesses(case: Case) -> Iterator[Guess]:
    made = _make(case["of"])
    for step in case["steps"]:
        if isinstance(made, Level):
            made.observe(step["value"], step["now"], step["noise"])
            yield made.guess(step["now"] + step["later"])
        else:
            made.observe(step["size"], step["value"], step["noise"])
            yield made.guess(step["asked"])


def _level(chance: random.Random, middle: float) -> Case:
    """A quantity that drifts, is now and then far off once, and steps in its middle."""
    steps, now = [], 0.0
    for turn in range(STEPS):
        now += chance.choice([0.001, 0.1, 1.0, 30.0])
        value = middle * (8.0 if turn >= STEPS // 2 else 1.0) * math.exp(chance.gauss(0, 0.1))
        value *= 20.0 if turn % 17 == 5 else 1.0
        noise = chance.choice([0.0, 0.0, 0.05])
        steps.append({"value": value, "now": now, "noise": noise, "later": chance.choice([0.0, 5.0])})
    return {"of": {"kind": "level", "prior": middle * 3, "variance": 1.0, "drift": 2e-3}, "steps": steps}


def _curve(chance: random.Random, power: float) -> Case:
    """Work that grows with a power of its size, is quicker at one size, and becomes another function in the middle."""
    steps = []
    for turn in range(STEPS):
        size = chance.choice([600, 5_000, 5_000, 70_000, round(10 ** chance.uniform(3, 7))])
        value = 1e-8 * size**power * math.exp(chance.gauss(0, 0.2)) * (0.3 if size == 5_000 else 1.0)
        value *= 5.0 if turn >= STEPS // 2 else 1.0
        asked = chance.choice([size, 600, 1_000_000])
        steps.append({"value": value, "size": size, "noise": chance.choice([0.0, 0.0, 0.6]), "asked": asked})
    return {"of": {"kind": "curve", "slope": 0.3, "variance": 1.0, "slope_variance": 0.1}, "steps": steps}


def _write() -> None:
    cases = {
        "level-round-trip": _level(random.Random(1), 2e-3),
        "level-rate": _level(random.Random(2), 1e7),
        "curve-linear": _curve(random.Random(3), 1.0),
        "curve-flat": _curve(random.Random(4), 0.0),
        "curve-cubic": _curve(random.Random(5), 1.5),
    }
    for name, case in cases.items():
        for step, guess in zip(case["steps"], list(_guesses(case)), strict=True):
            step["expected"] = {"log": guess.log, "variance": guess.variance, "noise": guess.noise}
        (FOLDER / f"{name}.json").write_text(json.dumps(case, indent=1) + "\n")


if os.environ.get("LIGHTER_UPDATE"):
    _write()


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.json")), ids=lambda file: file.stem)
def test_estimates_are_those_of_the_contract(file: Path) -> None:
    case = json.loads(file.read_text())
    assert len(case["steps"]) == STEPS
    for step, guess in zip(case["steps"], _guesses(case), strict=True):
        expected = step["expected"]
        said = (guess.log, guess.variance, guess.noise)
        assert said == pytest.approx((expected["log"], expected["variance"], expected["noise"]), rel=1e-9, abs=1e-12)

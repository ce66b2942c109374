"""Testbeds beside the study's: other rates, delays, losses, shares of a processor and mixes of functions.

The engine was changed with the first four records at hand, and changed again after the next four were seen. The last four
were opened when it was done, so that they tell what it does in worlds that it was not made for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lighterage.decide.replay import Record
from machines import Machines
from record import MATRICES, MIX, NUMBERS, TEXTS, Phase, Scenario, record
from testbed import Testbed


def _steps(calls: int, usual: int, between: int | None = None) -> tuple[Phase, ...]:
    """So many calls at one rate, as many at another or with other work on the node, and as many as at first."""
    middle = Phase(calls, usual, True) if between is None else Phase(calls, between)
    return Phase(calls, usual), middle, Phase(calls, usual)


@dataclass(frozen=True)
class Bed:
    """One testbed, and the calls on it."""

    name: str
    #: The client's part of one processor.
    share: float
    phases: tuple[Phase, ...]
    mix: Mapping[str, tuple[int, ...]]
    usual: str | None = None
    #: Of each packet, in each direction.
    delay_ms: float = 0.0
    #: The part of the packets that is lost.
    loss: float = 0.0
    #: Whether its record was kept aside until the engine was done.
    is_kept_aside: bool = False

    @property
    def scenario(self) -> Scenario:
        return Scenario(self.name, self.phases, self.mix, self.usual)

    @property
    def source(self) -> str:
        return f"client {self.share:g} of a processor, delay {self.delay_ms:g} ms, loss {self.loss:g}"


BEDS: Final = (
    Bed("quarter-60-mbit", 0.25, (Phase(150, 60),), MIX, "svd"),
    Bed("tenth-far-numbers", 0.1, (Phase(150, 100),), NUMBERS, delay_ms=20),
    Bed("whole-rate-steps-texts", 1.0, _steps(60, 80, 10), TEXTS),
    Bed("quarter-far-loss-matrices", 0.25, (Phase(150, 50),), MATRICES, delay_ms=20, loss=0.001),
    Bed("tenth-loss-texts", 0.1, (Phase(150, 30),), TEXTS, loss=0.005),
    Bed("quarter-far", 0.25, (Phase(150, 80),), MIX | NUMBERS | TEXTS, delay_ms=20),
    Bed("tenth-load-steps-matrices", 0.1, _steps(60, 100), MATRICES),
    Bed("whole-far-loss-numbers", 1.0, (Phase(150, 20),), NUMBERS, delay_ms=20, loss=0.001),
    Bed("quarter-loss-texts", 0.25, (Phase(150, 40),), TEXTS, delay_ms=2, loss=0.002, is_kept_aside=True),
    Bed("tenth-far-rate-steps", 0.1, _steps(50, 60, 15), MIX, "svd", delay_ms=20, is_kept_aside=True),
    Bed("whole-load-steps", 1.0, _steps(50, 100), NUMBERS | MATRICES, is_kept_aside=True),
    Bed("quarter-far-loss", 0.25, (Phase(150, 30),), MIX | NUMBERS, "primes", 20, 0.003, is_kept_aside=True),
)


def record_on(bed: Bed, lighter: str, seed: int, source: str) -> Record:
    """The calls of a testbed, timed at both places.

    Raises Unable and Failed as those do.
    """
    with Testbed(bed.share) as testbed:
        testbed.rate(bed.phases[0].rate)
        testbed.delay(bed.delay_ms, bed.loss)
        with Machines(testbed, lighter) as machines:
            return record(machines, bed.scenario, seed, source)

"""When a call is worth running at two places at once, and how many may be.

Running both costs no time where the client has some to spare, but work: the client's, the node's and the network's. So
planned races are for the calls whose better place is most in doubt, and at most one call in ten is one of them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .model import Prediction

#: Races that may be saved up.
SAVED_MAX: Final = 4.0
#: What races may be owed: late calls are doubled whatever was spent, and planned ones wait for it to be earned.
OWED_MAX: Final = 4.0
#: The doubt that a race needs at first, and what the bar is between.
BAR: Final = 0.04
BAR_MIN: Final = 0.01
BAR_MAX: Final = 0.5
#: How fast the bar follows, so that as many calls are above it as may be raced.
BAR_GAIN: Final = 0.15


class Races:
    """The budget of one client."""

    def __init__(self) -> None:
        self._saved = 1.0
        self._bar = BAR
        self._extra_seconds = 0.0
        self._total_seconds = 0.0

    def is_worth(self, doubt: float) -> bool:
        """Whether a call of this doubt is among those that are raced."""
        return doubt >= self._bar

    def has_budget(self, part: float) -> bool:
        """Whether one more is paid for, where `part` of all calls and of their time may be spent so."""
        return self._saved >= 1.0 and self._extra_seconds <= part * self._total_seconds

    def called(self, doubt: float, seconds: float, part: float) -> None:
        """A call was decided, and took so long."""
        self._total_seconds += seconds
        self._saved = min(self._saved + part, SAVED_MAX)
        # As many calls shall pass as can be paid for.
        self._bar *= math.exp(BAR_GAIN * ((doubt >= self._bar) - part))
        self._bar = min(max(self._bar, BAR_MIN), BAR_MAX)

    def raced(self, extra_seconds: float) -> None:
        """A call ran at two places, and the one whose result was not used took so much of this machine's processor."""
        self._saved = max(self._saved - 1.0, -OWED_MAX)
        self._extra_seconds += extra_seconds


def saving(best: Prediction, rival: Prediction, after: float = 0.0) -> float:
    """Seconds that the rival, begun so much later, is expected to save: `E max(best − after − rival, 0)`.

    Both are taken as log-normal, so it is the worth of an option to exchange one for the other (Margrabe, 1978).
    """
    other = rival.seconds + after
    spread = math.sqrt(best.log_variance + math.log1p((rival.spread / max(other, 1e-9)) ** 2))
    if spread <= 0.0 or best.seconds <= 0.0:
        return 0.0
    above = (math.log(best.seconds / other) + spread * spread / 2) / spread
    return best.seconds * _below(above) - other * _below(above - spread)


def hedged(there: Prediction, after: float, here: float) -> float:
    """Seconds that a call on a node is expected to take which begins here once it is late, and whose answer waits for that.

    The part of the log-normal below `after`, and `after + here` for the rest of it.
    """
    variance = there.log_variance
    if variance <= 0.0 or there.seconds <= 0.0 or after <= 0.0:
        return there.seconds if there.seconds <= after else after + here
    spread = math.sqrt(variance)
    at = (math.log(after / there.seconds) + variance / 2) / spread
    return there.seconds * _below(at - spread) + _below(-at) * (after + here)


def _below(at: float) -> float:
    """The part of a standard normal that is less."""
    return 0.5 * math.erfc(-at / math.sqrt(2))

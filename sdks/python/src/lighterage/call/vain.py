"""Calls of a function that ran on nodes and brought nothing: results that do not travel, limits that are too small for it.

One may be due to its arguments. After the second in a row the function rests from nodes, for a time that doubles.
"""

from __future__ import annotations

from typing import Final

#: Calls in a row after which it rests.
IN_A_ROW: Final = 2
#: Seconds for which it rests: the first time, and at most.
REST_SECONDS: Final = 5.0
REST_SECONDS_MAX: Final = 300.0


class Vain:
    """Safe for threads: what two of them do at once may count as one."""

    def __init__(self) -> None:
        self._count = 0
        self._until = 0.0

    def begin(self, now: float) -> None:
        """A call was in vain, at this time of the monotonic clock."""
        if now < self._until:
            # It began before the rest.
            return
        self._count += 1
        if self._count >= IN_A_ROW:
            doublings = min(self._count - IN_A_ROW, 16)
            self._until = now + min(REST_SECONDS * 2.0**doublings, REST_SECONDS_MAX)

    def end(self) -> None:
        """A call was not."""
        self._count, self._until = 0, 0.0

    def is_resting(self, now: float) -> bool:
        """Whether calls should run here."""
        return now < self._until

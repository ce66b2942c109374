"""Threads that run what is handed to them: a few wait for the next one, for starting one takes longer than many a call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

#: Helper threads that wait for more to do, and for how long.
IDLE_MAX: Final = 4
IDLE_SECONDS: Final = 10.0


class Helpers:
    """Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Helper] = []

    def run(self, action: Callable[[], None]) -> None:
        with self._lock:
            helper = self._idle.pop() if self._idle else None
        if helper is None:
            helper = _Helper(self)
            threading.Thread(target=helper.live, daemon=True, name="lighterage-helper").start()
        helper.give(action)

    def rest(self, helper: _Helper) -> bool:
        """Whether it may wait for more to do."""
        with self._lock:
            if len(self._idle) >= IDLE_MAX:
                return False
            self._idle.append(helper)
            return True

    def leave(self, helper: _Helper) -> bool:
        """Whether it may go: nobody has given it anything."""
        with self._lock:
            if helper not in self._idle:
                return False
            self._idle.remove(helper)
            return True


class _Helper:
    def __init__(self, helpers: Helpers) -> None:
        self._helpers = helpers
        # Held while there is nothing to do.
        self._given = threading.Lock()
        self._given.acquire()
        self._action: Callable[[], None] | None = None

    def give(self, action: Callable[[], None]) -> None:
        self._action = action
        self._given.release()

    def live(self) -> None:
        while True:
            if not self._given.acquire(timeout=IDLE_SECONDS):
                if self._helpers.leave(self):
                    return
                continue
            action, self._action = self._action, None
            if action is not None:
                action()
            del action
            if not self._helpers.rest(self):
                return

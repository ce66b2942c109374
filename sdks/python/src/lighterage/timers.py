"""Things to do later: one thread that waits for the next of them, started when there is a first one."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from typing import Final

#: Seconds that the thread waits for more to do before it ends.
IDLE_SECONDS: Final = 10.0
#: Seconds that it sleeps at once: a condition takes no time beyond `threading.TIMEOUT_MAX`, and it looks again anyway.
SLEEP_SECONDS_MAX: Final = 3_600.0


class Timer:
    """Something that will be done."""

    __slots__ = ("action",)

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        """It will not be done, unless it has begun."""
        self.action = None


class Timers:
    """Safe for threads. What is done must be short: `background` is for what takes longer."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: list[tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._is_running = False

    def after(self, seconds: float, action: Callable[[], None]) -> Timer:
        """Does it in a background thread after so many seconds."""
        timer = Timer(action)
        due = time.monotonic() + seconds
        with self._changed:
            is_next = not self._waiting or due < self._waiting[0][0]
            heapq.heappush(self._waiting, (due, next(self._numbers), timer))
            if not self._is_running:
                # The thread waits for the lock; where none can be started, the next one to come tries again.
                background(self._run)
                self._is_running = True
            elif is_next:
                self._changed.notify()
        return timer

    def _run(self) -> None:
        try:
            self._wait_and_do()
        except BaseException:
            # The next thing to do starts another thread.
            with self._changed:
                self._is_running = False
            raise

    def _wait_and_do(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                while self._waiting and (self._waiting[0][2].action is None or self._waiting[0][0] <= now):
                    action = heapq.heappop(self._waiting)[2].action
                    if action is not None:
                        background(action)
                wait = self._waiting[0][0] - now if self._waiting else IDLE_SECONDS
                if not self._changed.wait(min(wait, SLEEP_SECONDS_MAX)) and not self._waiting:
                    self._is_running = False
                    return


def background(action: Callable[[], object]) -> threading.Thread:
    """Does it in a thread that does not keep the program alive."""
    thread = threading.Thread(target=action, daemon=True, name="lighterage")
    thread.start()
    return thread

"""One call at two places: here in a thread of its own, and on a node in the caller's. The first result is the call's.

    caller   ── wait ──▶ encode, call, decode ──▶ result             `remote_won`: the half here is stopped
    helper   ────────── compute ─────────────────▶ result           `here_won`: the request is cancelled

A half here is stopped between two bytecodes, as Ctrl-C would. One that is inside a long call of a library runs out first;
nobody waits for it, its result is dropped, and until then calls here are known to be disturbed.
"""

from __future__ import annotations

import contextvars
import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from ..helpers import Helpers
from ..places.wire import Cancel
from ..travel.calls import Outcome

#: While both halves run, threads take turns after this many seconds: the one that writes and reads needs its turn soon.
TURN_SECONDS: Final = 5e-4
#: A half that was told to stop and took longer than this, and than this part of what it had run, has run out.
STOP_SECONDS: Final = 0.02
STOP_PART: Final = 0.25

#: Whether this code is a half that may be dropped: what it calls in turn is not raced.
is_half: Final[contextvars.ContextVar[bool]] = contextvars.ContextVar("lighterage_half", default=False)


class Overtaken(BaseException):
    """Raised in a function that runs here when a node has been sooner. Not an error; nobody sees its result."""


class Race:
    """The two halves of one call. `here` is the function with its arguments."""

    def __init__(self, here: Callable[[], Any], cancel: Cancel) -> None:
        self.cancel = cancel
        self.began = time.monotonic()
        #: When the half on the node began, and what this thread had computed by then.
        self._there_began: tuple[float, float] | None = None
        self._here = here
        self._context = contextvars.copy_context()
        self._context.run(is_half.set, True)
        self._done = threading.Condition()
        self._is_over = False
        self._is_running = False
        self._is_hasty = False
        self._thread = 0
        self._stopped_at = 0.0
        #: What the half here did, where it was first.
        self.outcome: Outcome | None = None
        self.handed_at = 0.0
        self.here_began = 0.0
        self.here_ended = 0.0
        #: How far the request had come when the half here was first.
        self.sending: tuple[int, float] | None = None
        #: Whether the node was waited for by then: it had the whole request and had not answered, or was not even
        #: connected.
        self.was_asked = False
        #: Called in the helper when a half here that lost has ended, with whether it could be stopped.
        self.on_end: Callable[[bool], None] | None = None

    @property
    def has_begun_here(self) -> bool:
        return self.here_began > 0.0

    @property
    def is_doubled(self) -> bool:
        """Whether both halves have begun."""
        return self.has_begun_here and self._there_began is not None

    def hand(self, helpers: Helpers) -> None:
        """Begins the half here, in another thread."""
        self.handed_at = time.monotonic()
        helpers.run(self.run_here)

    def run_here(self) -> None:
        """The half here, in the thread that it is to run in. Does nothing where the call is over."""
        try:
            self._run_here()
            # Told to stop, but not in time.
            _raise_in(threading.get_ident(), None)
        except Overtaken:
            self._end(None)
        if self._stopped_at and self.on_end is not None:
            took, before = self.here_ended - self._stopped_at, self._stopped_at - self.here_began
            self.on_end(took <= max(STOP_SECONDS, STOP_PART * before))

    def _run_here(self) -> None:
        with self._done:
            if self._is_over or self.cancel.is_cancelled:
                return
            self._is_running = True
            self._thread = threading.get_ident()
            self.here_began = time.monotonic()
            self._hasten(self._there_began is not None)
        try:
            outcome = Outcome(self._context.run(self._here))
        except BaseException as error:
            outcome = Outcome(error=error)
        self._end(outcome)

    def _end(self, outcome: Outcome | None) -> None:
        with self._done:
            if not self._is_running:
                return
            self._is_running = False
            self.here_ended = time.monotonic()
            self._hasten(False)
            won = not self._is_over
            if won and outcome is not None:
                self._is_over = True
                self.outcome = outcome
                self.sending = self.cancel.sending()
                self.was_asked = self.cancel.is_busy and self.sending is None
            self._done.notify_all()
        if won and self._there_began is not None:
            self.cancel.cancel()

    def wait_here(self, seconds: float | None) -> Outcome | None:
        """What the half here did, once it is done; none if it is not within so many seconds."""
        with self._done:
            self._done.wait_for(lambda: self.outcome is not None, seconds)
            return self.outcome

    def begin_there(self) -> bool:
        """Whether the half on the node should begin, in this thread."""
        with self._done:
            if self.outcome is not None:
                return False
            self._there_began = time.monotonic(), time.thread_time()
            self._hasten(self._is_running)
            return True

    def there(self) -> tuple[float, float]:
        """Seconds since the half on the node began, and seconds that this thread has computed for it."""
        began, computed = self._there_began or (time.monotonic(), time.thread_time())
        return time.monotonic() - began, time.thread_time() - computed

    def there_won(self) -> bool:
        """The node has answered: whether that is the call's result. Stops the half here."""
        with self._done:
            if self.outcome is not None:
                return False
            self._stop()
            return True

    def there_failed(self) -> Outcome | None:
        """The node did not do it: what the half here did, waited for, if it has begun; else it will not begin."""
        with self._done:
            self._hasten(False)
            self._done.wait_for(lambda: not self._is_running)
            self._is_over = True
            return self.outcome

    def abandon(self) -> None:
        """Nobody wants the result any more."""
        with self._done:
            self._stop()

    def _stop(self) -> None:
        self._is_over = True
        self._hasten(False)
        if self._is_running and not self._stopped_at:
            self._stopped_at = time.monotonic()
            _raise_in(self._thread, Overtaken)

    @property
    def is_left_running(self) -> bool:
        """Whether the half here has lost and still runs."""
        return self._stopped_at > 0.0 and self._is_running

    def _hasten(self, is_hasty: bool) -> None:
        if is_hasty != self._is_hasty:
            self._is_hasty = is_hasty
            _turns.change(1 if is_hasty else -1)


class _Turns:
    """How long threads keep their turn, for the whole process: shorter while any call runs at two places."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._usual = 0.0

    def change(self, by: int) -> None:
        with self._lock:
            self._count += by
            if self._count == 1 and by > 0:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual, TURN_SECONDS))
            elif self._count == 0:
                sys.setswitchinterval(self._usual)

    def renew(self) -> None:
        """Begins anew in a process that was forked: races of the parent's threads do not go on there."""
        self._lock = threading.Lock()
        if self._count:
            sys.setswitchinterval(self._usual)
        self._count = 0


_turns: Final = _Turns()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_turns.renew)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Raises an exception in another thread between two bytecodes, or takes back one that has not been raised yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), None if error is None else ctypes.py_object(error))

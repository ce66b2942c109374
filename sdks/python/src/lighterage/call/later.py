"""Futures of calls that run in another thread."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any

from ..places.wire import Cancel


class CancellableFuture(Future[Any]):
    """A future whose call on a node ends when it is cancelled while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self._cancel = Cancel()

    def run(self, action: Callable[[Cancel], Any]) -> None:
        if not self.set_running_or_notify_cancel():
            return
        try:
            self.set_result(action(self._cancel))
        except BaseException as error:
            self.set_exception(error)

    def cancel(self) -> bool:
        """Ends the call where it has not begun or is on a node. A call that runs here goes on, and this is false."""
        if super().cancel():
            return True
        if self.done() or not self._cancel.is_waited_for:
            return False
        self._cancel.cancel()
        return True

    def cancelled(self) -> bool:
        return super().cancelled() or (self.done() and isinstance(self.exception(), CancelledError))

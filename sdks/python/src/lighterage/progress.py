"""A bar on the terminal: how much of a `map` is done, how fast, and how long it will take."""

from __future__ import annotations

import sys
import time
from typing import Final, TextIO

#: Seconds between two drawings.
PAUSE: Final = 0.1
WIDTH: Final = 24


class Progress:
    """Draws on one line; nothing where it is not wanted."""

    def __init__(self, title: str, total: int | None, shown: bool | None = None, out: TextIO | None = None) -> None:
        """Without `shown`, only a terminal gets it."""
        self._out = out or sys.stderr
        self._is_shown = self._out.isatty() if shown is None else shown
        self._title = title
        self._total = total
        self._began = time.monotonic()
        self._drawn = 0.0
        self._length = 0

    def show(self, done: int, where: str, now: float | None = None) -> None:
        """So many are done."""
        now = time.monotonic() if now is None else now
        if not self._is_shown or now - self._drawn < PAUSE:
            return
        self._drawn = now
        self._write(line(self._title, done, self._total, now - self._began, where))

    def end(self, done: int, where: str) -> None:
        """All that will be done is done."""
        if self._is_shown:
            self._is_shown = False
            self._write(line(self._title, done, self._total, time.monotonic() - self._began, where))
            self._out.write("\n")
            self._out.flush()

    def _write(self, text: str) -> None:
        self._out.write("\r" + text.ljust(self._length))
        self._out.flush()
        self._length = len(text)


def line(title: str, done: int, total: int | None, seconds: float, where: str) -> str:
    """The text of a bar."""
    rate = done / seconds if seconds > 0 else 0.0
    parts = [title]
    if total:
        filled = WIDTH * done // total
        parts.append(f"[{'#' * filled}{'.' * (WIDTH - filled)}] {done}/{total}")
    else:
        parts.append(str(done))
    parts.append(f"{rate:.0f}/s" if rate >= 10 else f"{rate:.2g}/s")
    if total and 0 < done < total:
        parts.append(f"{_duration((total - done) / rate)} left")
    elif done == total:
        parts.append(f"in {_duration(seconds)}")
    return "  ".join([*parts, where]).rstrip()


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

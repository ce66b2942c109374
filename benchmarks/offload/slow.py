"""Makes a process slow: it may compute for a tenth of a millisecond, then is stopped until that has earned its share.

    python slow.py PID SHARE

A control group's quota would not do: the kernel enforces it at its timer ticks, 4 ms apart on most machines, so that what
is short runs at full speed and what is longer sleeps for twenty times 4 ms. A slow machine is slow all the time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from typing import Final

#: Seconds of computing at a time.
SLICE: Final = 1e-4


def slow(pid: int, share: float) -> None:
    """Returns when the process has ended."""
    computed = ~pid << 3 | 2  # The clock of its computing time, as `clock_getcpuclockid` would give it.
    with contextlib.suppress(ProcessLookupError, OSError):
        while True:
            began, before = time.perf_counter(), time.clock_gettime(computed)
            time.sleep(SLICE)
            used = time.clock_gettime(computed) - before
            if used < SLICE / 10:
                continue
            os.kill(pid, signal.SIGSTOP)
            time.sleep(max(used / share - (time.perf_counter() - began), 0.0))
            os.kill(pid, signal.SIGCONT)


def main() -> int:
    pid, share = int(sys.argv[1]), float(sys.argv[2])
    # It must run when it wants to, above all before the process that it slows down.
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        slow(pid, share)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    return 0


if __name__ == "__main__":
    sys.exit(main())

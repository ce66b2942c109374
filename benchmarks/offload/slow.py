"""Makes a process slow: it may compute for a tenth of a millisecond, then has no processor until that has earned its share.

    python slow.py PID SHARE        (on the processor that the process is bound to)

It is kept from computing by keeping the processor busy with something more urgent, this program. Two other ways were measured:
A control group's quota is enforced at the kernel's timer ticks, 4 ms apart on most machines, so that what is short runs at
full speed and what is longer sleeps for twenty times that. And a process that is stopped and continued by signals is slow,
but its threads are not: a signal is taken by the first of them, and while that one sleeps, another computes on at full
speed; sent to each by itself, signals wake those that sleep, and one that wants the interpreter's lock waits for a tenth of
a second. A slow machine is slow all the time, and its threads take turns as everywhere.
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
            until = began + used / share
            while time.perf_counter() < until:
                pass


def main() -> int:
    pid, share = int(sys.argv[1]), float(sys.argv[2])
    # More urgent than the process that it slows down. The kernel leaves a twentieth of the time to others in any case.
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    slow(pid, share)
    return 0


if __name__ == "__main__":
    sys.exit(main())

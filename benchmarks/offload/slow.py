"""Makes a process slow: it may compute for a tenth of a millisecond, then is stopped until that has earned its share.

    python slow.py PID SHARE

A control group's quota would not do: the kernel enforces it at its timer ticks, 4 ms apart on most machines, so that what
is short runs at full speed and what is longer sleeps for twenty times 4 ms. A slow machine is slow all the time.

The signal to stop goes to every thread by itself. One to the process is taken by its first thread, which may be asleep: until
that gets its turn, another thread computes on at full speed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import struct
import sys
import time
from typing import Final

#: Seconds of computing at a time.
SLICE: Final = 1e-4
#: Seconds of a thread's turn on most machines, and the shortest that the scheduler gives.
TURN: Final = 3e-3
TURN_NANOSECONDS_MIN: Final = 100_000
#: System calls that Python has no function for: to signal one thread, and to say how one is scheduled.
TGKILL, SCHED_SETATTR = {"x86_64": (234, 314), "aarch64": (131, 274)}[platform.machine()]
_system: Final = ctypes.CDLL(None, use_errno=True)


def stop(pid: int) -> None:
    """Stops all threads, whichever of them runs."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        _system.syscall(TGKILL, pid, int(thread), signal.SIGSTOP)


def shorten_turns(pid: int, share: float) -> None:
    """A slow machine's threads take turns as often as anybody's; those of a fast one that is stopped, as seldom as it runs.

    So the scheduler is asked for turns that are shorter by the same factor. Kernels before 6.12 do not listen.
    """
    nice = os.getpriority(os.PRIO_PROCESS, pid)
    turn = max(round(TURN * share * 1e9), TURN_NANOSECONDS_MIN)
    # struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period.
    asked = struct.pack("=IIQiIQQQ", 48, os.SCHED_OTHER, 0, nice, 0, turn, 0, 0)
    _system.syscall(SCHED_SETATTR, pid, asked, 0)


def slow(pid: int, share: float) -> None:
    """Returns when the process has ended."""
    shorten_turns(pid, share)
    computed = ~pid << 3 | 2  # The clock of its computing time, as `clock_getcpuclockid` would give it.
    with contextlib.suppress(ProcessLookupError, OSError):
        while True:
            began, before = time.perf_counter(), time.clock_gettime(computed)
            time.sleep(SLICE)
            used = time.clock_gettime(computed) - before
            if used < SLICE / 10:
                continue
            stop(pid)
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

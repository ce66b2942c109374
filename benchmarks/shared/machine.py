"""The machine that a benchmark runs on: a number without it means nothing."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from pathlib import Path
from typing import Final

#: Above this part of the processors' time, what the host takes disturbs a benchmark enough to say so.
STOLEN_MAX: Final = 0.05


def processor_times(stat: str | None = None) -> tuple[int, int]:
    """Ticks since the start of the machine: those it worked, and those it wanted and the host gave to others (proc(5))."""
    text = Path("/proc/stat").read_text(encoding="ascii") if stat is None else stat
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, text.split(maxsplit=9)[1:9])
    return user + nice + system + irq + softirq, steal


#: When this program began.
BEGAN: Final = processor_times()


def stolen(then: tuple[int, int], now: tuple[int, int]) -> float:
    """The part of the processors' time that was wanted since then, and that the host took."""
    # Some kernels take a few ticks back.
    worked, taken = (max(new - old, 0) for new, old in zip(now, then, strict=True))
    return taken / max(worked + taken, 1)


def note() -> str | None:
    """What disturbed this program; none if little did."""
    part = stolen(BEGAN, processor_times())
    if part <= STOLEN_MAX:
        return None
    return f"NOTE: the host took {part:.0%} of the processors' time; expect noise and long tails"


def words() -> str:
    """Processor, how many of them, system and Python, in a line."""
    system = f"Linux {platform.release()}, Python {platform.python_version()}"
    return f"Machine: {processor()}, {os.cpu_count()} processors, {system}"


def processor() -> str:
    """Its model, as its maker calls it."""
    found = subprocess.run(["lscpu"], capture_output=True, text=True, check=False).stdout
    names = [line.partition(":")[2].strip() for line in found.splitlines() if line.startswith("Model name")]
    return names[0] if names else platform.processor()


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])

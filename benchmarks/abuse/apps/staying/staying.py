"""A module that does what it can to outlive its node, in the way that its environment names, as soon as it is imported.

The ways are those of `crates/units/unit-process/tests/jailed/killed.rs`.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

LIBC = ctypes.CDLL(None)
STAY = "import time\nwhile True: time.sleep(1)"
#: Of `prctl`, by machine.
NUMBERS = {"x86_64": 157, "aarch64": 167}


def _stay() -> None:
    os.setsid()
    while True:
        if os.fork() != 0:
            time.sleep(1_000)
        time.sleep(0.2)


def _asks_not_to_be_told() -> None:
    LIBC.prctl(1, 0, 0, 0, 0)


def _asks_by_number() -> None:
    LIBC.syscall(NUMBERS[os.uname().machine], 1, 0, 0, 0, 0)


def _becomes_another_program() -> None:
    """From another thread, which takes the place of the first one, for which the signal was meant."""

    def become() -> None:
        time.sleep(0.5)
        os.execv(sys.executable, ["python3", "-c", STAY])

    threading.Thread(target=become).start()


def _leaves_children() -> None:
    for _ in range(8):
        if os.fork() == 0:
            _stay()


def _ignores_signals() -> None:
    for number in range(1, 65):
        if number not in (9, 17, 19, 32, 33):
            signal.signal(number, signal.SIG_IGN)
    if os.fork() == 0:
        _stay()


WAYS: dict[str, Callable[[], None]] = {
    "told": _asks_not_to_be_told,
    "number": _asks_by_number,
    "program": _becomes_another_program,
    "children": _leaves_children,
    "signals": _ignores_signals,
}

WAYS[os.environ["WAY"]]()


def handle(event: object) -> str:
    return "here"

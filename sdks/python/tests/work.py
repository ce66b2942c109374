"""Functions that the tests offload: a module as users have them, with a local module that it imports."""

import asyncio
import os
import threading
import time
from dataclasses import dataclass

import numpy as np

import work_helper
from lighterage import Limits, offload


@dataclass
class Scale:
    factor: float

    @offload
    def times(self, array):
        return array * self.factor, os.getpid()

    @staticmethod
    @offload
    def twice(x):
        return 2 * x


class TooSmall(ValueError):
    def __init__(self, value):
        super().__init__(f"{value} is too small")
        self.value = value


@offload
def where(x=None):
    return os.getpid()


@dataclass
class Meter:
    """An object with methods that are not decorated."""

    factor: float

    def measure(self, x):
        return x * self.factor, os.getpid()

    def __call__(self, x):
        return x * self.factor

    @classmethod
    def named(cls):
        return cls.__name__


@offload
def double(x):
    return work_helper.times(x, 2)


@offload
def total(array):
    return float(array.sum())


@offload
def fail(value):
    raise TooSmall(value)


@offload
def recurse(depth):
    return [os.getpid(), *(recurse(depth - 1) if depth else [])]


@offload
async def later(x):
    await asyncio.sleep(0)
    return x + 1, os.getpid()


@offload
async def later_lock():
    """Gives what does not travel, and who made it."""
    return threading.Lock(), threading.get_ident()


@offload(pure=True)
def slow(seconds):
    time.sleep(seconds)
    return os.getpid()


@offload
def die():
    os._exit(3)


@offload(limits=Limits(seconds=0.3), fallback=False)
def forever():
    while True:
        time.sleep(0.01)


@offload
def echo(value):
    return value


@offload
def deep(levels):
    value = None
    for _ in range(levels):
        value = [value]
    return value


@offload(limits=Limits(body_bytes=100_000))
def small(array):
    return array


@offload
def weighed(count):
    import cargo_hook  # a package that a lock file names

    return count * cargo_hook.WEIGHT


@offload
def large(count):
    return np.ones(count)


@offload
def lock():
    return threading.Lock()


@offload
def odd_locks(x):
    return threading.Lock() if x % 2 else x


@offload
def reciprocal(x):
    return 1 / x


@offload
def die_at_three(x):
    if x == 3:
        os._exit(1)
    return x


@offload
def chatter(count):
    line = "x" * 999
    for _ in range(count // 1_000):
        print(line)
    return count


@offload
def spoil(array):
    array[0] += 1
    return float(array.sum())


@offload
def unknown(home):
    class Hidden(Exception):
        pass

    raise Hidden(1 if os.getpid() != home else 2)


@offload(pure=True)
def spin(home, seconds):
    """Computes in Python where it was called, and next to nothing elsewhere."""
    ends = time.monotonic() + seconds
    while os.getpid() == home and time.monotonic() < ends:
        pass
    return os.getpid(), threading.get_ident()


@offload(pure=True)
def crawl(home, seconds):
    """Takes long everywhere but where it was called."""
    if os.getpid() != home:
        time.sleep(seconds)
    ends = time.monotonic() + 0.3
    while time.monotonic() < ends:
        pass
    return os.getpid()


@offload(pure=True)
def keep_busy(home, count):
    """Has the interpreter to itself until it is done, where it was called."""
    return sum(range(int(count))) if os.getpid() == home else os.getpid()


@offload(pure=True)
def stumble(home, seconds):
    """Raises in the end where it was called."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        pass
    if os.getpid() == home:
        raise TooSmall(home)
    return os.getpid()


@offload(pure=True)
def nested(home, seconds):
    spin(home, seconds / 10)
    return spin(home, seconds)


@offload
def die_elsewhere(x, home):
    """The first few end the process, unless it is where they were called."""
    if x < 3 and os.getpid() != home:
        os._exit(1)
    time.sleep(0.01)
    return os.getpid()


@offload
def nap(x):
    time.sleep(0.01)
    return x


@offload
def heavy(home):
    """Needs half a gigabyte everywhere but where it was called."""
    return os.getpid() if os.getpid() == home else float(np.ones(64 << 20).sum())


@offload
def refused_memory(home):
    """As a unit at its limit, where no control group counts its memory."""
    if os.getpid() != home:
        raise MemoryError
    return home

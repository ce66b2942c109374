"""Many calls, large ones that are cut half-way, clocks that are years off: no call is lost, and nothing is left behind."""

import gc
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import lighterage
import work
from lighterage import LighterageError
from lighterage.places import runtime
from test_node import PROGRAM, RealNode

#: With LIGHTER_LONG=1 ten times as many.
CALLS = 1_000_000 if os.environ.get("LIGHTER_LONG") else 100_000
YEARS = 20 * 365 * 86_400.0
# 100 MB that packing would not make smaller.
HUGE = np.random.default_rng(3).integers(0, 1 << 62, 12_500_000)


class Held:
    """What this process holds: memory in bytes, descriptors, threads."""

    def __init__(self):
        gc.collect()
        self.memory = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        self.descriptors = len(os.listdir("/proc/self/fd"))
        self.threads = threading.active_count()


def settled(before, memory_max):
    """Waits until threads and connections that end by themselves have ended; then nothing more than before may be held."""
    deadline = time.monotonic() + 20
    while True:
        now = Held()
        if now.descriptors <= before.descriptors + 2 and now.threads <= before.threads + 2:
            break
        assert time.monotonic() < deadline, (vars(before), vars(now))
        time.sleep(0.1)
    assert now.memory - before.memory < memory_max, (before.memory, now.memory)


def test_a_hundred_thousand_calls_leave_nothing_behind(node, client):
    """Decided calls, nearly all of which stay here; of each thousand one goes to a node, by each of three ways."""
    work.double.prepare()
    chunk = CALLS // 100

    def some(first):
        for x in range(first, first + chunk):
            assert work.double(x) == 2 * x
            if x % 1_000 == 0:
                assert work.double.remote(x) == 2 * x
                assert work.double.submit(x).result(30) == 2 * x
                assert list(lighterage.map(work.double, [x, x + 1], progress=False)) == [2 * x, 2 * x + 2]

    for at in range(20):
        some(at * chunk)
    before = Held()
    for at in range(20, 100):
        some(at * chunk)
    settled(before, 24 << 20)
    stats = runtime.current.stats_of("work:double")
    assert not stats.failures
    # Those of the fast path are counted a little late: up to 64 of each class of sizes.
    assert sum(stats.calls.values()) >= 0.95 * CALLS


def test_a_hundred_megabytes_cut_half_way_either_way_are_not_lost(node, network):
    client = lighterage.connect(network.url, node.token)
    plain = work.echo.with_options(compress=False)
    plain.prepare()
    for size in (128, 1e6, 1e8):
        for _ in range(3):
            runtime.current.engine.observe_local("work:echo", size, 100.0)
    small = np.arange(1_000)
    assert (plain.remote(small) == small).all()
    before = Held()
    for side in ("cut_up", "cut_down"):
        network.cut()
        setattr(network, side, HUGE.nbytes // 2)
        with pytest.raises(LighterageError) as caught:
            plain.remote(HUGE)
        assert caught.value.code in ("L1102", "L8002"), caught.value
        assert plain(HUGE) is HUGE, "it is run here instead"
        client.answered()
        setattr(network, side, None)
        network.cut()
        assert (plain.remote(small) == small).all(), "and the next one there again"
        client.answered()
    caught = None
    network.cut()
    settled(before, 64 << 20)


def test_no_clock_on_the_wall_is_looked_at(node, monkeypatch):
    """The node's is twenty years ahead, then behind; this machine's must not be asked at all."""

    def nobody():
        raise AssertionError("the wall clock was read")

    for skew in (YEARS, -YEARS):
        node.skew = skew
        client = lighterage.connect(node.url, node.token)
        with monkeypatch.context() as patched:
            # The stand-in's threads are in this process: only what the package itself asks is refused.
            real = time.time

            def checked(real=real):
                if sys._getframe(1).f_globals.get("__name__", "").startswith("lighterage"):
                    nobody()
                return real()

            patched.setattr(time, "time", checked)
            assert work.double.remote(21) == 42
            assert work.double.with_options(deadline=30.0).remote(2) == 4
            assert list(lighterage.map(work.double, range(50), progress=False)) == [2 * x for x in range(50)]
            assert work.where.submit().result(30)
            known = work.double.explain(1).decision.predictions
            assert all(0 < prediction.seconds < 60 for prediction in known)
        for limit in range(10, 16):
            # Each is a version of its own; the newest four stay, by the node's clock alone.
            work.where.with_options(limits=lighterage.Limits(seconds=limit)).remote()
        assert sum(name.startswith("py-where-") for name in node.functions) <= 4
        lighterage.disconnect(client)
        node.functions.clear()


SHIM = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static long off(void) { const char *text = getenv("TEST_SKEW"); return text ? atol(text) : 0; }
int clock_gettime(clockid_t which, struct timespec *out) {
    int result = syscall(SYS_clock_gettime, which, out);
    if (!result && which == CLOCK_REALTIME) out->tv_sec += off();
    return result;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""


@pytest.mark.parametrize("skew", [YEARS, -YEARS])
def test_a_node_whose_clock_is_years_off_serves_as_any_other(tmp_path, skew):
    if not PROGRAM.exists():
        pytest.skip(f"node: {PROGRAM} is not built")
    if not shutil.which("cc"):
        pytest.skip("cc: there is no C compiler to make a node's clock wrong")
    (tmp_path / "shim.c").write_text(SHIM)
    shim = tmp_path / "shim.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", shim, tmp_path / "shim.c"], check=True)
    (tmp_path / "data").mkdir()
    there = RealNode(tmp_path / "data", LD_PRELOAD=str(shim), TEST_SKEW=str(int(skew)))
    try:
        client = there.connect()
        assert work.double.with_options(deadline=30.0).remote(21) == 42
        array = np.arange(100_000.0)
        assert (work.double.remote(array) == 2 * array).all()
        assert list(lighterage.map(work.double, range(100), progress=False)) == [2 * x for x in range(100)]
        deployed = max(version["deployed_ms"] for one in client.functions() for version in one["versions"]) / 1e3
        assert abs(deployed - time.time() - skew) < 3_600, "its clock is wrong indeed"
        assert all(0 < found.seconds < 60 for found in work.double.explain(1).decision.predictions)
    finally:
        there.stop()

"""`./bench calls`: what a call costs beside Ray, Dask, RPyC, HTTP with pickle, and raw TCP."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

import functions
import peers
import shared.figures
import shared.machine

#: Bytes of the array that goes there and back.
ARRAY_BYTES: Final = 8_000_000
TASKS: Final = 1_000
BARS: Final = {
    "call_p50_ms": ("<=", 0.4),
    "call_vs_ray_client": (">=", 10),
    "call_vs_dask": (">=", 10),
    "call_vs_http_pickle": (">=", 1),
    "array_vs_best_peer": (">=", 2),
    "array_vs_tcp": (">=", 0.5),
    "array_kept_vs_tcp": (">=", 0.8),
    "map_vs_best_peer": (">=", 1),
    "process_call_p50_ms": ("<=", 0.4),
    "process_first_call_ms": ("<=", 150),
    "child_private_mb": ("<=", 4),
    "native_speed_ratio": (">=", 0.97),
}


#: What a round finds of a contestant.
KEYS: Final = ("call_ms", "call_p99_ms", "array_mb_s", "kept_mb_s", "tasks_s")


class Standing:
    """What one contestant has reached; each number is a round's."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.call_ms: list[float] = []
        self.call_p99_ms: list[float] = []
        self.array_mb_s: list[float] = []
        #: Of the same array again and again, where who serves it may keep it.
        self.kept_mb_s: list[float] = []
        self.tasks_s: list[float] = []
        self.problem: str | None = None

    def add(self, found: dict[str, Any]) -> None:
        """Takes in what a round found."""
        for key in KEYS:
            getattr(self, key).extend(found[key])
        self.problem = found["problem"]


def measure(peer: peers.Peer, standing: Standing, calls: int, arrays: int) -> None:
    """One round. What is compared is how it goes on, not how it begins."""
    _each(peer.nothing, calls // 4)
    took = _each(peer.nothing, calls)
    standing.call_ms.append(statistics.median(took) * 1e3)
    standing.call_p99_ms.append(float(np.quantile(took, 0.99)) * 1e3)
    array = np.random.default_rng(0).random(ARRAY_BYTES // 8)
    standing.array_mb_s.append(_rate(peer.echo, array, arrays))
    if isinstance(peer, peers.Lighterage):
        # Its first call was measured by nobody: from then on the unit has the array, and only the result travels.
        standing.kept_mb_s.append(_rate(peer.echo_kept, array, arrays))
        if not np.array_equal(peer.echo_kept(array), array + 1.0):
            raise ValueError("what it keeps is wrong")
    if not isinstance(peer, peers.RawTcp):
        peer.map(range(10))
        began = time.perf_counter()
        found = peer.map(range(TASKS))
        standing.tasks_s.append(TASKS / (time.perf_counter() - began))
        if found != [number * number for number in range(TASKS)]:
            raise ValueError("its map is wrong")
        if not np.array_equal(peer.echo(array), array + 1.0):
            raise ValueError("its array is wrong")


def _rate(echo: Callable[[Any], Any], array: Any, times: int) -> float:
    """MB a second there and back; the first time does not count."""
    echo(array)
    return 2 * ARRAY_BYTES / statistics.median(_each(lambda: echo(array), times)) / 1e6


def _each(action: Callable[[], object], times: int) -> list[float]:
    found = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        found.append(time.perf_counter() - began)
    return found


def unit_figures(ours: peers.Lighterage) -> dict[str, float]:
    """What a process unit costs: a fresh child for each call, and what its memory and its speed are."""
    import lighterage

    make = lighterage.offload(any_version=True, fallback=False, local=False)
    product = make(functions.product)
    pairs = [(functions.product(600, 8), product.remote(600, 8)) for _ in range(5)]
    timing = []
    for _ in range(300):
        began = time.perf_counter()
        ours.fresh.remote()
        timing.append(time.perf_counter() - began)
        # So long that the next child is ready: the fork is ahead of need.
        time.sleep(0.005)
    return {
        "native_speed_ratio": statistics.median(here / there for here, there in pairs),
        "process_call_p50_ms": statistics.median(timing) * 1e3,
        "process_first_call_ms": _first_call(),
        "child_private_mb": _private_mb(),
    }


def _first_call() -> float:
    """Milliseconds of the first call after a deployment; the base is there."""
    import lighterage
    from lighterage.places import runtime

    took = []
    for number in range(5):
        # Other limits are another deployment.
        limits = lighterage.Limits(seconds=20.0 + number)
        made = lighterage.offload(limits=limits, any_version=True, fallback=False, local=False)(functions.task)
        runtime.current.nodes()[0].prepare(made.function.made())
        began = time.perf_counter()
        made.remote(1)
        took.append((time.perf_counter() - began) * 1e3)
    return statistics.median(took)


def _private_mb() -> float:
    """Private megabytes of an idle child: the median over all processes whose parent is a zygote."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            fields = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            command = (status.parent / "cmdline").read_bytes()
            parent = Path(f"/proc/{fields['PPid'].strip()}/cmdline").read_bytes()
            if b"zygote" not in command or command != parent:
                continue
            rollup = (status.parent / "smaps_rollup").read_text()
        except (OSError, KeyError):
            continue
        found.append(sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Private_")) * 1024 / 1e6)
    return statistics.median(found) if found else float("nan")


CONTESTANTS: Final[dict[str, Callable[[argparse.Namespace], Any]]] = {
    "lighterage": lambda chosen: peers.Lighterage(chosen.lighter),
    "raw TCP": lambda _: peers.RawTcp(),
    "HTTP+pickle": lambda _: peers.HttpPickle(),
    "RPyC": lambda _: peers.Rpyc(),
    "Dask": lambda _: peers.Dask(),
    "Ray Client": lambda _: peers.RayClient(),
}


def one_round(name: str, chosen: argparse.Namespace) -> None:
    """What a round of one contestant found, as a line of JSON: the process is its own, for clients leave threads behind."""
    os.sched_setaffinity(0, {0})
    calls, arrays, _ = sizes(chosen)
    found = Standing(name)
    figures = {}
    try:
        with contextlib.closing(CONTESTANTS[name](chosen)) as peer:
            measure(peer, found, calls, arrays)
            if name == "lighterage":
                figures = unit_figures(peer)
    except Exception as problem:
        found.problem = f"{type(problem).__name__}: {problem}"
    finally:
        peers.end_all()
    print(json.dumps({"standing": vars(found), "figures": figures}))


def sizes(chosen: argparse.Namespace) -> tuple[int, int, int]:
    """Calls, arrays and rounds."""
    return (500, 10, 2) if chosen.quick else (2_000, 40, 4)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./bench calls", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under five minutes: fewer calls and rounds")
    parser.add_argument("--lighter", default="build/dist/lighter", help="the node's program")
    parser.add_argument("--round", choices=CONTESTANTS, help="one round of one contestant, as JSON")
    chosen = parser.parse_args()
    if chosen.round:
        one_round(chosen.round, chosen)
        return 0
    print(f"{shared.machine.words()}, numpy {np.__version__}")
    began = time.monotonic()
    standings = {name: Standing(name) for name in CONTESTANTS}
    figures: dict[str, float | None] = dict.fromkeys(BARS)
    units: list[dict[str, float]] = []
    rounds = sizes(chosen)[2]
    for turn in range(rounds):
        # A B C, C B A; each with the processors to itself.
        for name in CONTESTANTS if turn % 2 == 0 else reversed(CONTESTANTS):
            standing = standings[name]
            if standing.problem is not None:
                continue
            print(f"round {turn + 1} of {rounds}: {name}", file=sys.stderr)
            ran = subprocess.run([sys.executable, *sys.argv, "--round", name], stdout=subprocess.PIPE, text=True, check=False)
            if ran.returncode:
                standing.problem = f"its client ended with {ran.returncode}"
                continue
            found = json.loads(ran.stdout.splitlines()[-1])
            standing.add(found["standing"])
            if found["figures"]:
                units.append(found["figures"])
    if units:
        figures.update({name: statistics.median(one[name] for one in units) for name in units[0]})
    report(standings, figures)
    print(f"\nbench: done after {time.monotonic() - began:.0f} s\n")
    shared.figures.report(BARS, figures)
    return 0


def report(standings: dict[str, Standing], figures: dict[str, float | None]) -> None:
    print(f"\n{'':14}{'no-op p50 ms':>14}{'p99 ms':>10}{'8 MB there and back, MB/s':>28}{'small tasks/s':>16}")
    middle: dict[str, dict[str, float]] = {}
    for name, standing in standings.items():
        if standing.problem is not None:
            print(f"{name:14}  given up: {standing.problem}")
            continue
        row = middle[name] = {key: statistics.median(values) for key in KEYS if (values := getattr(standing, key))}
        cells = f"{row['call_ms']:14.3f}{row['call_p99_ms']:10.3f}{row['array_mb_s']:28.0f}"
        print(f"{name:14}{cells}{row['tasks_s']:16.0f}" if "tasks_s" in row else f"{name:14}{cells}{'-':>16}")
    ours = middle.get("lighterage")
    if ours is None:
        return
    figures["call_p50_ms"] = ours["call_ms"]
    figure_of = {"Ray Client": "call_vs_ray_client", "Dask": "call_vs_dask", "HTTP+pickle": "call_vs_http_pickle"}
    for peer, figure in figure_of.items():
        if peer in middle:
            figures[figure] = middle[peer]["call_ms"] / ours["call_ms"]
    others = [row for name, row in middle.items() if name not in ("lighterage", "raw TCP")]
    if others:
        figures["array_vs_best_peer"] = ours["array_mb_s"] / max(row["array_mb_s"] for row in others)
        figures["map_vs_best_peer"] = ours["tasks_s"] / max(row["tasks_s"] for row in others)
    if "raw TCP" in middle:
        figures["array_vs_tcp"] = ours["array_mb_s"] / middle["raw TCP"]["array_mb_s"]
        figures["array_kept_vs_tcp"] = ours["kept_mb_s"] / middle["raw TCP"]["array_mb_s"]


if __name__ == "__main__":
    sys.exit(main())

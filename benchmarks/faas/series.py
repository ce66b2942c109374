"""Requests a second of the smallest `wasi:http` function for WASI 0.3, beside the one for 0.2, in class wasm.

Both are in Rust, get a fresh unit each time and are asked by the same load generator, in turns, of one node.
"""

from __future__ import annotations

import shutil
import statistics
from typing import Final

from bench import Bench
from latency import FAILURES
from rates import CONNECTIONS, ROUNDS, rate

from shared.namespaces import Unable
from shared.node import Node

FIGURE: Final = "wasi03_http_vs_02"
#: Functions by what they are written for.
COMPONENTS: Final = {"wasi:http 0.2": "hello-http", "wasi:http 0.3": "hello-http03"}


def measure(bench: Bench) -> None:
    """A line for each of the two, and the median of 0.3 over the median of 0.2."""
    try:
        found = _rates(bench)
    except (Unable, *FAILURES) as why:
        print(f"  not measured: {why}")
        bench.unable([FIGURE], str(why))
        return
    print(f"\nrequests a second, {CONNECTIONS} connections, {ROUNDS} rounds")
    for name, rates in found.items():
        print(f"{name:42} {statistics.median(rates):10,.0f}   from {min(rates):,.0f} to {max(rates):,.0f}")
    old, new = (statistics.median(rates) for rates in found.values())
    bench.figures[FIGURE] = new / old


def _rates(bench: Bench) -> dict[str, list[float]]:
    folder = bench.folder("series")
    manifest = ""
    for component in COMPONENTS.values():
        shutil.copy(bench.guests / f"{component}.wasm", folder)
        manifest += f'[function.{component}]\nimage = "{component}.wasm"\nhttp = "/{component}"\n'
    (folder / "lighter.toml").write_text(manifest)
    node = Node(bench.lighter, folder / "data")
    found: dict[str, list[float]] = {name: [] for name in COMPONENTS}
    with node.up():
        node.deploy(folder)
        for _ in range(ROUNDS):
            for name, component in COMPONENTS.items():
                found[name].append(rate(bench.load, node.url(component), bench.pick(2, 6)))
    return found

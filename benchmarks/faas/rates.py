"""Requests a second of a `wasi:http` function in Rust: a fresh machine each, beside a fresh instance of `wasmtime serve` each.

The same component, asked by the same load generator for as long, in turns. Both servers may use every core that the
generator leaves.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench import Bench
from glue import await_port
from latency import FAILURES

import shared.machine
import shared.peers
from shared.namespaces import Unable
from shared.node import Node

FIGURE: Final = "microvm_http_rust_vs_wasmtime_serve"
CONNECTIONS: Final = 32
ROUNDS: Final = 3


def measure(bench: Bench) -> None:
    """Ours over theirs."""
    compare(bench, FIGURE, _rates)


def compare(bench: Bench, figure: str, rates_of: Callable[[Bench], dict[str, list[float]]]) -> None:
    """A line for each of two, and the first over the second: the median of the rounds' ratios."""
    try:
        rates = rates_of(bench)
    except (Unable, *FAILURES) as why:
        print(f"  not measured: {why}")
        bench.unable([figure], str(why))
        return
    print(f"\nrequests a second, {CONNECTIONS} connections, {ROUNDS} rounds")
    for name, found in rates.items():
        print(f"{name:42} {statistics.median(found):10,.0f}   from {min(found):,.0f} to {max(found):,.0f}")
    first, second = rates.values()
    bench.figures[figure] = statistics.median(one / other for one, other in zip(first, second, strict=True))


def _rates(bench: Bench) -> dict[str, list[float]]:
    wasmtime = shared.peers.program(bench.peers, "wasmtime")
    folder = bench.folder("rates")
    shutil.copy(bench.guests / "hello-http.wasm", folder)
    (folder / "lighter.toml").write_text(
        '[function.hello]\nisolation = "microvm"\nimage = "hello-http.wasm"\nhttp = "/hello"\n'
    )
    node = Node(bench.lighter, folder / "data")
    port = shared.machine.free_port()
    # A fresh instance each, as its name says and as ours is.
    serve = [wasmtime, "serve", "-S", "cli", "--max-instance-reuse-count", "1", "--addr", f"127.0.0.1:{port}"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(node.up())
        node.deploy(folder)
        stack.enter_context(shared.peers.process([*serve, str(folder / "hello-http.wasm")], folder / "wasmtime.log"))
        await_port(port)
        servers = {
            "lighter, microvm, fresh machine": node.url("hello"),
            "wasmtime serve, fresh instance": f"http://127.0.0.1:{port}/",
        }
        return in_turns(bench, servers)


def in_turns(bench: Bench, urls: dict[str, str]) -> dict[str, list[float]]:
    """The rates of each round by name; every other round goes backwards."""
    rates: dict[str, list[float]] = {name: [] for name in urls}
    for turn in range(ROUNDS):
        for name in [*urls] if turn % 2 == 0 else [*reversed(urls)]:
            rates[name].append(_rate(bench.load, urls[name], bench.pick(2, 6)))
    return rates


def _rate(load: Path | None, url: str, seconds: int) -> float:
    """What the load generator says, if no more than a few requests failed."""
    if load is None:
        raise Unable("the load generator was not given: --bench")
    command = [str(load), "load", url, "--connections", str(CONNECTIONS), "--seconds", str(seconds)]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    failed = sum(said["errors"].values())
    if failed > said["replies"] / 1_000:
        raise Unable(f"{url}: {failed} requests failed beside {said['replies']} replies: {said['errors']}")
    return float(said["replies_per_s"])

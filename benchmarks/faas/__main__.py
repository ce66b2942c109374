"""`./bench faas`: the workloads of the UniFaaS paper in our classes, beside what others run functions with.

Parts run alone: `--part latency`. What could not be measured is null in the last line, and a line says why.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import boots
import growth
import latency
import rates
import series
from bench import BARS, Bench

import shared.figures
import shared.machine
import shared.peers

#: The parts, in the order in which they run, and what each is.
PARTS: Final[dict[str, tuple[str, Callable[[Bench], None]]]] = {
    "latency": ("six workloads from MQTT to their ends, beside peers", latency.measure),
    "boots": ("starts from nothing, from a snapshot, and warm", boots.measure),
    "rates": ("requests a second, beside wasmtime serve", rates.measure),
    "series": ("requests a second of WASI 0.3, beside 0.2", series.measure),
    "growth": ("memory and processor with one to ten units", growth.measure),
}


def main() -> int:
    """Prints the figures; how many miss their bar."""
    options = argparse.ArgumentParser(prog="./bench faas", description=(__doc__ or "").splitlines()[0])
    options.add_argument("--lighter", required=True, type=Path, help="the node's program")
    options.add_argument("--guests", required=True, type=Path, help="the components")
    options.add_argument("--peers", type=Path, help="where the peers are: what benchmarks/peers printed")
    options.add_argument("--bench", type=Path, help="the load generator: the program of benchmarks/src")
    options.add_argument("--quick", action="store_true", help="under five minutes: fewer events, and a second of idleness")
    options.add_argument("--part", action="append", choices=PARTS, help="only this part; may be given more than once")
    asked = options.parse_args()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    print(shared.machine.words())
    peers = shared.peers.read(asked.peers)
    for name, (path, version) in peers.items():
        print(f"  {name}: {version if path != '-' else f'not had: {version}'}")
    with tempfile.TemporaryDirectory(prefix="lighter-faas-") as place:
        load = asked.bench.resolve() if asked.bench else None
        bench = Bench(asked.lighter.resolve(), asked.guests.resolve(), Path(place), asked.quick, peers, load)
        for name, (does, part) in PARTS.items():
            if not asked.part or name in asked.part:
                began = time.monotonic()
                print(f"\n{name}: {does}")
                part(bench)
                print(f"  ({name} took {time.monotonic() - began:.0f} s)")
    print()
    for name in BARS:
        if name not in bench.figures:
            print(f"{name}: not measured: {bench.reasons.get(name, 'its part did not run')}")
    return shared.figures.report(BARS, {name: bench.figures.get(name) for name in BARS})


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(1 if main() else 0)
    sys.exit(130)

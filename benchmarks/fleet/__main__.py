"""`./bench fleet`: what a fleet of nodes costs, and what it keeps when nodes, links and its engine fail."""

from __future__ import annotations

import argparse
import contextlib
import io
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import parts
from bench import BARS, Bench
from nodes import Failed, Programs

import shared.figures
import shared.machine
import shared.peers
from shared.namespaces import Unable


def main() -> int:
    parser = argparse.ArgumentParser(prog="./bench fleet", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"only these: {', '.join(parts.ALL)}")
    parser.add_argument("--part", action="append", default=[], help="the same; may be repeated")
    parser.add_argument("--quick", action="store_true", help="under five minutes: fewer rounds")
    parser.add_argument("--lighter", required=True, type=Path, help="the node's program")
    parser.add_argument("--bench", required=True, type=Path, help="the program that makes calls")
    parser.add_argument("--town", required=True, type=Path, help="the simulation: the example `town` of the crate choice")
    parser.add_argument("--guests", required=True, type=Path, help="the components")
    parser.add_argument("--peers", type=Path, help="where the peers are: what benchmarks/peers printed")
    chosen = parser.parse_args()
    names = [*chosen.parts, *chosen.part]
    if unknown := set(names) - set(parts.ALL):
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are: {', '.join(parts.ALL)}")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    print(shared.machine.words())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    peers = shared.peers.read(chosen.peers)
    engine = peers.get("nats-server", ("-", ""))[0]
    if engine == "-":
        print(f"the fleets have no engine: {peers.get('nats-server', ('', 'no nats-server'))[1]}")
    programs = Programs(
        lighter=chosen.lighter.resolve(),
        nats_server=None if engine == "-" else Path(engine),
        bench=chosen.bench.resolve(),
        town=chosen.town.resolve(),
        guests=chosen.guests.resolve(),
    )
    with tempfile.TemporaryDirectory(prefix="lighter-fleet-") as folder:
        bench = Bench(programs, Path(folder), chosen.quick, peers)
        failed = [name for name in parts.ALL if (not names or name in names) and not succeeded(bench, name)]
    wanted = {name for part in names or parts.ALL for name in parts.ALL[part].figures}
    for name in sorted(wanted - bench.figures.keys()):
        print(f"{name}: not measured: {bench.reasons.get(name, 'its part failed')}")
    bars = {name: bar for name, bar in BARS.items() if name in wanted}
    missed = shared.figures.report(bars, {name: bench.figures.get(name) for name in bars})
    return 1 if failed or missed else 0


def succeeded(bench: Bench, name: str) -> bool:
    """Runs a part; whatever becomes of it, the others run too."""
    part = parts.ALL[name]
    began = time.monotonic()
    print(f"\n{name}: {part.does}")
    try:
        part.run(bench)
    except Unable as problem:
        bench.unable(part.figures, str(problem))
        print(f"  not done: {problem}")
    except (Failed, OSError, ValueError, KeyError, subprocess.SubprocessError) as problem:
        bench.unable(part.figures, f"the part failed: {problem}")
        print(f"  FAILED: {problem}")
        if not isinstance(problem, Failed):
            traceback.print_exc()
        return False
    finally:
        print(f"  ({name} took {time.monotonic() - began:.0f} s)")
    return True


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
    sys.exit(130)

"""Choice and planner in virtual time: the crates that ship, played by the example `town` of the crate choice."""

from __future__ import annotations

import json
import subprocess
from typing import Final

from bench import Bench
from nodes import Failed

NODES: Final = 10_000
#: Calls of each node. Few of them are its first second, while nobody knows much of the others yet.
CALLS: Final = 100
CALLS_QUICK: Final = 20


def town(bench: Bench) -> None:
    calls = bench.rounds(CALLS_QUICK, CALLS)
    command = [str(bench.programs.town), str(NODES), str(calls)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Failed(f"the simulation: {done.stderr.strip()[-300:]}")
    *lines, last = done.stdout.strip().splitlines()
    for line in lines:
        print(f"  {line}")
    found = json.loads(last)
    for name in ("sim_nodes", "sim_regret_mean", "choice_us", "plan_ms_10000"):
        bench.figures[name] = found[name]
    print(f"  99th percentile over the oracle's: {found['sim_regret_p99']}")

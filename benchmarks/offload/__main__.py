"""`./bench offload`: does offloading pay, and does the engine know when?"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import elsewhere
import metrics
import plots
import record
import report
import shared.figures
import shared.machine
import sweep
from lighterage.decide.replay import POLICIES, Played, play, table
from machines import Failed, Machines
from testbed import Testbed, Unable

#: The client's part of one processor. With it the crossover of multiplication falls inside the sweep, as in the study.
SHARE = 0.1
SEED = 1
PARTS = ("sweep", "others", "decide", "live", "elsewhere")
BARS = {
    "decision_accuracy": (">=", 0.95),
    "decision_accuracy_elsewhere": (">=", 0.95),
    "decision_accuracy_kept_aside": (">=", 0.95),
    "regret_stationary": ("<=", 0.05),
    "regret_steps": ("<=", 0.15),
    "recovery_calls": ("<=", 3),
    "penalty_worst": ("<=", 2.0),
    "penalty_worst_of_20_ms": ("<=", 2.0),
    "doubled_part": ("<=", 0.1),
    "extra_part": ("<=", 0.1),
    "decide_us": ("<=", 50.0),
    "local_overhead_us": ("<=", 20.0),
}
STUDY, OTHER_BEDS, COSTS = "the study's testbed", "other testbeds", "costs"
#: What is measured, one after the other, and the figures that come of it.
FIGURES = {
    STUDY: (
        "decision_accuracy",
        "regret_stationary",
        "regret_steps",
        "recovery_calls",
        "penalty_worst",
        "penalty_worst_of_20_ms",
        "doubled_part",
        "extra_part",
    ),
    OTHER_BEDS: ("decision_accuracy_elsewhere", "decision_accuracy_kept_aside"),
    COSTS: ("decide_us", "local_overhead_us"),
}
#: What a measurement may end with without ending the run.
FAILURES = (Unable, Failed, OSError, subprocess.SubprocessError)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./bench offload", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under five minutes: few sizes and rates, two runs of each")
    parser.add_argument("--part", action="append", choices=PARTS, help="only these; may be repeated")
    parser.add_argument("--operation", action="append", choices=sweep.work.OPERATIONS, help="only these; may be repeated")
    parser.add_argument("--sizes", type=_numbers, help="sizes of the sweep, as 400,800 [default: 400,500…1200; quick: 200,400]")
    parser.add_argument("--rates", type=_numbers, help="its rates in Mbit/s [default: 10,20,40,60,80,100; quick: 100]")
    parser.add_argument("--times", type=int, help="runs of each point of the sweep [default: 40; quick: 2]")
    parser.add_argument("--calls", type=int, help="calls of each record in a still world [default: 300; quick: 40]")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="one-way delay of the network [default: 0]")
    parser.add_argument("--share", type=float, default=SHARE, help=f"the client's part of one processor [default: {SHARE}]")
    parser.add_argument("--lighter", default="build/dist/lighter", help="the node's program")
    parser.add_argument("--out", type=Path, default=Path("build/offload"), help="folder for measurements, records and pictures")
    parser.add_argument("--again", action="store_true", help="forget what an earlier run has measured")
    parser.add_argument("--report", type=Path, metavar="TEXT", help="measure nothing: make a text's tables and pictures anew")
    return parser.parse_args()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def sweep_path(chosen: argparse.Namespace) -> Path:
    """What was measured on another testbed is another measurement."""
    return Path(chosen.out) / f"sweep-{'quick-' if chosen.quick else ''}{chosen.share:g}-{chosen.delay_ms:g}ms.jsonl"


def the_report(chosen: argparse.Namespace) -> int:
    """The text with its tables and pictures made anew, from all that was measured so far."""
    found = metrics.rows(sweep.load(sweep_path(chosen)))
    if not found:
        print(f"bench offload: nothing is measured yet in {sweep_path(chosen)}: --part sweep does", file=sys.stderr)
        return 1
    try:
        report.write(found, chosen.report)
    except (OSError, report.Unknown) as problem:
        print(f"bench offload: {problem}", file=sys.stderr)
        return 1
    print(f"{chosen.report}: made anew from {sweep_path(chosen)}")
    return 0


def the_sweep(machines: Machines, chosen: argparse.Namespace) -> None:
    plan = sweep.QUICK if chosen.quick else sweep.Plan()
    changes = {"operations": tuple(chosen.operation or ()), "sizes": chosen.sizes, "rates": chosen.rates, "times": chosen.times}
    plan = dataclasses.replace(plan, **{name: value for name, value in changes.items() if value})
    path = sweep_path(chosen)
    if chosen.again:
        path.unlink(missing_ok=True)
    found = metrics.rows(sweep.run(machines, plan, path))
    text = metrics.text(found)
    print(text)
    print(f"\npictures: {plots.page(found, text, chosen.out)}")


def the_others(machines: Machines) -> None:
    """Work of other intensities at 100 Mbit/s."""
    machines.testbed.rate(100)
    round_trip = machines.ask(do="meet")["round_trip"]
    print(f"\nOther work at 100 Mbit/s, ms\n{'function':14}{'n':>6}{'client':>10}{'node':>10}  pays")
    for function, sizes in sweep.work.OTHERS.items():
        for size in sizes:
            try:
                local = statistics.median(machines.ask(do="local", function=function, n=size, times=3)["seconds"])
                asked = {"function": function, "n": size, "times": 3, "round_trip": round_trip}
                remote = statistics.median(machines.ask(do="remote", **asked)["seconds"])
            except Failed as problem:
                print(f"{function:14}{size:>6}  not measured: {problem}")
                break
            print(f"{function:14}{size:>6}{local * 1e3:10.2f}{remote * 1e3:10.2f}  {'yes' if remote < local else 'no'}")


def record_path(scenario: record.Scenario, chosen: argparse.Namespace) -> Path:
    name = scenario.name.replace(", ", "-").replace(" ", "-").replace("/", "")
    return Path(chosen.out) / f"record-{'quick-' if chosen.quick else ''}{name}.json"


def source(chosen: argparse.Namespace, testbed: str) -> str:
    """Where a record is from. One of another machine or another program is not gone on with."""
    program = hashlib.sha256(Path(chosen.lighter).read_bytes()).hexdigest()[:12]
    return f"{platform.machine()}, {shared.machine.processor()}, lighter {program}, {testbed}"


def source_here(chosen: argparse.Namespace) -> str:
    """The same of a record on the study's testbed."""
    return source(chosen, f"client {chosen.share:g} of a processor, delay {chosen.delay_ms:g} ms")


def the_decisions(machines: Machines, chosen: argparse.Namespace) -> dict[str, Any]:
    """Records calls at both places and plays them to every policy."""
    here = source_here(chosen)
    played: list[tuple[str, Played]] = []
    for scenario in record.scenarios(chosen.calls):
        path = record_path(scenario, chosen)
        made = None if chosen.again else record.taken_up(path, scenario, here)
        if made is None:
            made = record.record(machines, scenario, SEED, here)
            made.save(path)
        print(f"\n{scenario.name}, replayed: {len(made.points)} calls\n{table(made)}")
        played.append((scenario.name, play(made, "lighterage", POLICIES["lighterage"](made))))
    still = [one for name, one in played if name.startswith("stationary")]
    steps = [one for name, one in played if not name.startswith("stationary")]
    every = [one for _, one in played]
    return {
        "decision_accuracy": sum(one.right for one in every) / max(sum(one.clear for one in every), 1),
        "regret_stationary": sum(one.seconds for one in still) / sum(one.oracle_seconds for one in still) - 1,
        "regret_steps": sum(one.seconds for one in steps) / sum(one.oracle_seconds for one in steps) - 1,
        "recovery_calls": max((calls for one in steps for calls in one.recovery_calls), default=0),
        "penalty_worst": max(one.penalty_worst for one in every),
        "penalty_worst_of_20_ms": max(one.penalty_worst_of_20_ms for one in every),
        "doubled_part": sum(one.doubled for one in every) / sum(one.calls for one in every),
        "extra_part": sum(one.extra_seconds for one in every) / sum(one.seconds for one in every),
    }


def the_decisions_elsewhere(chosen: argparse.Namespace, figures: dict[str, float | None]) -> None:
    """The same on other testbeds, with other mixes of functions: how often the choice is right there, over all of them."""
    every, aside = [], []
    for bed in elsewhere.BEDS:
        path = Path(chosen.out) / f"record-{bed.name}.json"
        there = source(chosen, bed.source)
        made = None if chosen.again else record.taken_up(path, bed.scenario, there)
        if made is None:
            made = elsewhere.record_on(bed, chosen.lighter, SEED, there)
            made.save(path)
        print(f"\n{bed.name} ({bed.source}), replayed: {len(made.points)} calls\n{table(made)}")
        every.append(play(made, "lighterage", POLICIES["lighterage"](made)))
        aside += every[-1:] if bed.is_kept_aside else []
    here = figures["penalty_worst_of_20_ms"] or 1.0
    figures |= {
        "decision_accuracy_elsewhere": sum(one.right for one in every) / max(sum(one.clear for one in every), 1),
        "decision_accuracy_kept_aside": sum(one.right for one in aside) / max(sum(one.clear for one in aside), 1),
        "penalty_worst_of_20_ms": max(here, *(one.penalty_worst_of_20_ms for one in every)),
    }


def the_live_calls(testbed: Testbed, chosen: argparse.Namespace) -> None:
    """The recorded calls once more, decided by `@offload` in a client that knows nothing yet."""
    print()
    here = source_here(chosen)
    with Machines(testbed, chosen.lighter) as fresh:
        scenarios = record.scenarios(chosen.calls)
        for scenario in scenarios[1:4] if chosen.quick else scenarios:
            recorded = record.taken_up(record_path(scenario, chosen), scenario, here)
            if recorded is None:
                print(f"{scenario.name}, live: there is no record to judge it by: ./bench offload --part decide makes it")
                continue
            confirmed = record.confirm(recorded, record.live(fresh, scenario, SEED))
            ratio = "" if confirmed.race_ratio is None else f", {confirmed.race_ratio:.2f} × the replay's time for them"
            print(
                f"{scenario.name}, live: accuracy {confirmed.accuracy:.1%}, regret {confirmed.regret:.1%}, "
                f"{confirmed.remote_part:.0%} of the calls on the node, {confirmed.doubled_part:.1%} at both places{ratio}"
            )


def the_costs(chosen: argparse.Namespace, figures: dict[str, float | None]) -> None:
    """Deciding, on a client that may use its processor whole."""
    with Testbed(1.0) as testbed:
        testbed.rate(100)
        with Machines(testbed, chosen.lighter) as machines:
            figures |= machines.ask(do="costs")


def on_the_studys_testbed(
    chosen: argparse.Namespace, parts: Collection[str], figures: dict[str, float | None]
) -> None:
    """The parts that are measured there."""
    with Testbed(chosen.share) as testbed:
        testbed.rate(100)
        if chosen.delay_ms:
            testbed.delay(chosen.delay_ms)
        with Machines(testbed, chosen.lighter) as machines:
            if "sweep" in parts:
                the_sweep(machines, chosen)
            if "others" in parts:
                the_others(machines)
            if "decide" in parts:
                figures |= the_decisions(machines, chosen)
        if "live" in parts:
            the_live_calls(testbed, chosen)


def main() -> int:
    chosen = arguments()
    chosen.out.mkdir(parents=True, exist_ok=True)
    chosen.out = chosen.out.resolve()
    if chosen.report:
        return the_report(chosen)
    chosen.calls = chosen.calls or (40 if chosen.quick else 300)
    # Twelve testbeds take half an hour.
    parts = chosen.part or (PARTS[:-1] if chosen.quick else PARTS)
    figures: dict[str, float | None] = dict.fromkeys(BARS)
    began = time.monotonic()
    print(shared.machine.words())
    print(f"Client: {chosen.share:g} of a processor: the crossover of multiplication falls inside the sweep, as in the study")
    wanted: dict[str, Callable[[], None]] = {}
    if set(parts) - {"elsewhere"}:
        wanted[STUDY] = lambda: on_the_studys_testbed(chosen, parts, figures)
    if "elsewhere" in parts:
        wanted[OTHER_BEDS] = lambda: the_decisions_elsewhere(chosen, figures)
    if "decide" in parts:
        wanted[COSTS] = lambda: the_costs(chosen, figures)
    reasons = {what: why for what, measure in wanted.items() if (why := why_not(what, measure))}
    print(f"\nbench: done after {time.monotonic() - began:.0f} s\n")
    for what, names in FIGURES.items():
        for name in names:
            if figures[name] is None:
                print(f"{name}: not measured: {reasons.get(what, 'its part did not run')}")
    shared.figures.report(BARS, figures)
    return 1 if reasons else 0


def why_not(what: str, measure: Callable[[], None]) -> str:
    """Measures; says what has ended that, if anything did. The other measurements go on."""
    try:
        measure()
    except FAILURES as problem:
        print(f"\n{what}: ended by {type(problem).__name__}: {problem}")
        return " ".join(f"{type(problem).__name__}: {problem}".split())[:300]
    return ""


if __name__ == "__main__":
    sys.exit(main())

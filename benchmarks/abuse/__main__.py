"""`./bench abuse`: a node in 256 MiB, attacked in every way we know.

It prints what the node's neighbours, its administrator and its disk notice of it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import attacks
import durability
import machine
import probes
import shared.figures
import shared.machine
from attacks import compiling, mqtt
from node import Dead, Node

HERE: Final = Path(__file__).parent
#: Memory of the control group that the node and its units are in.
GROUP_BYTES: Final = 256 << 20
#: Runs without an attack, of which the middle one counts.
QUIET_RUNS: Final = 5
#: A node that is not well again after so long never is.
RECOVER_SECONDS_MAX: Final = 30.0
BARS: Final = {
    "node_killed": ("<=", 0),
    "node_rss_peak_mb": ("<=", 256),
    "neighbour_p99_ratio_worst": ("<=", 3),
    "admin_p99_ms": ("<=", 500),
    "recover_s": ("<=", 5),
    "poison_restarts": ("<=", 5),
    "login_right_password_p99_ms": ("<=", 2_000),
    "compile_bomb_cancel_s": ("<=", 2),
    "jail_leftovers": ("<=", 0),
    "acked_lost": ("<=", 0),
    "bit_flip_other_writes_refused": ("<=", 0),
    "webhook_id_changed": ("<=", 0),
}
#: Figures of the worst of all attacks, and the others that come of them.
WORST: Final = ("neighbour_p99_ratio_worst", "admin_p99_ms", "recover_s")
OF_ATTACKS: Final = (*WORST, "node_killed", "node_rss_peak_mb", "compile_bomb_cancel_s")
#: What a measurement may end with without ending the run.
FAILURES: Final = (*durability.FRUITLESS, machine.Unable, subprocess.SubprocessError)
MANIFEST: Final = """
[function.neighbour]
image = "hello.wasm"
http = "/neighbour"

[function.attack]
image = "attack.wasm"
http = "/attack"
grants.push = ["attack-out"]
grants.stores = ["attack"]

[queue.attack-out]
bytes_max = 67108864

[function.attack-http]
image = "attack-http.wasm"
http = "/keep-resources"
"""


class Run:
    """One run of the benchmark: its node, its figures and what it prints."""

    def __init__(self, chosen: argparse.Namespace, folder: Path) -> None:
        self.chosen = chosen
        self.folder = folder
        self.guests = Path(chosen.guests).resolve()
        self.figures: dict[str, float | None] = dict.fromkeys(BARS)
        self.rows: list[list[str]] = []
        self.logins: list[float] = []
        #: Whether all attacks that were asked for could be tried.
        self.is_whole = True
        #: What attackers run in: on a machine of their own they would take nothing from the node's processors.
        self.last = machine.Last(f"lighter-abuse-{os.getpid()}")

    def try_all(self, names: list[str]) -> None:
        """Tries the attacks. Where that ends early, a line says why figures are missing; the table has the rest."""
        try:
            self._try_all(names)
        except FAILURES as problem:
            self.is_whole = False
            if self.figures["node_killed"] is None:
                # Some of the attacks say nothing of the worst of all.
                self.figures |= dict.fromkeys(WORST)
            for name in OF_ATTACKS:
                if self.figures[name] is None:
                    print(f"{name}: not measured: the attacks ended early: {problem}")

    def _try_all(self, names: list[str]) -> None:
        """One by one, then all at once, on one node."""
        known = attacks.all_attacks()
        wanted = {name: attack for name, attack in known.items() if not names or name in names}
        if not wanted and attacks.EVERYTHING not in names:
            return
        group = machine.Group(f"lighter-abuse-{os.getpid()}", GROUP_BYTES)
        self.bare = probes.Bare(self.chosen.bench)
        with machine.closing_all(group, self.last, self.bare):
            node = self._node(group)
            try:
                self._prepare(node)
                quiet = self._quiet(node)
                for name, attack in wanted.items():
                    self._tried(name, attack.does, [name], node, quiet)
                if not names or attacks.EVERYTHING in names:
                    self._tried(attacks.EVERYTHING, "all of them at once", list(known), node, quiet)
                self.figures["node_killed"] = node.deaths
                self.figures["node_rss_peak_mb"] = node.rss_peak / 1e6
                if not names or "compile_bomb" in names:
                    self.figures["compile_bomb_cancel_s"] = self._cancel_bomb(node)
            finally:
                node.stop()

    def _node(self, group: machine.Group) -> Node:
        configuration = self.folder / "node.toml"
        users = "".join(
            f'[mqtt.users.{name}]\npassword = "{self._hash(password)}"\n{rights}\n'
            for (name, password), rights in (
                (mqtt.GOOD_USER, 'publish = ["#"]\nsubscribe = ["#"]'),
                (mqtt.IDLE_USER, "publish = []\nsubscribe = []"),
            )
        )
        configuration.write_text(f'[mqtt]\nlisten = "127.0.0.1:0"\n\n{users}')
        options = ("--config", str(configuration), "--python", sys.executable)
        return Node(self.chosen.lighter, self.folder / "node", group, options)

    def _prepare(self, node: Node) -> None:
        """Starts it, with a neighbour and functions that attack."""
        node.start(again=True)
        node.deploy(
            durability.project(self.folder / "apps", MANIFEST, self.guests, "hello.wasm", "attack.wasm", "attack-http.wasm")
        )
        for app in ("hostile", "loading"):
            shutil.copytree(HERE / "apps" / app, self.folder / app)
        with contextlib.suppress(Dead):
            node.deploy(self.folder / "hostile")

    def _hash(self, password: str) -> str:
        program = str(Path(self.chosen.lighter).resolve())
        done = subprocess.run([program, "mqtt-password"], input=password, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def _callers(self, node: Node, seconds: float) -> tuple[probes.Neighbour, probes.Neighbour]:
        """Who calls the neighbour, and who calls the bare server in the same seconds."""
        host, port = node.address("gate")
        urls = (f"http://{host}:{port}/neighbour", self.bare.url)
        neighbour, bare = (probes.Neighbour(self.chosen.bench, url, seconds) for url in urls)
        return neighbour, bare

    def _quiet(self, node: Node) -> tuple[float, float]:
        """The 99th percentiles of neighbour and bare server while nothing happens.

        They are medians of runs that are as long as an attack: a worst one would make ratios look good.
        """
        found = []
        for _ in range(QUIET_RUNS):
            administrator = probes.Administrator(node)
            callers = self._callers(node, self.chosen.seconds)
            found.append([*(caller.p99_ms()[0] for caller in callers), administrator.p99_ms()])
        neighbours, bares, admins = zip(*found, strict=True)
        print(f"quiet, {QUIET_RUNS} runs: the neighbour's p99 {min(neighbours):.2f} to {max(neighbours):.2f} ms")
        neighbour, bare, admin = map(statistics.median, (neighbours, bares, admins))
        cells = [f"{neighbour:.2f}", "1.0", f"{bare:.2f}", "1.0", "0", f"{admin:.0f}", f"{node.rss() / 1e6:.0f}"]
        self.rows.append(["none", *cells, "", "0", ""])
        return neighbour, bare

    def _tried(self, name: str, does: str, names: list[str], node: Node, quiet: tuple[float, float]) -> None:
        print(f"{name}: {does}", file=sys.stderr)
        seconds = self.chosen.seconds * (2 if len(names) > 1 else 1)
        deaths = node.deaths
        until = time.time() + seconds + 1
        attackers = [self._attacker(one, node, until) for one in names]
        login = threading.Thread(target=self._log_in, args=(node, until), daemon=True)
        if "wrong_passwords" in names:
            login.start()
        administrator = probes.Administrator(node)
        try:
            neighbour, bare = self._callers(node, seconds)
            (p99_ms, failed), (bare_ms, _) = neighbour.p99_ms(), bare.p99_ms()
            worked = machine.cpu_seconds({attacker.pid for attacker in attackers}) / seconds
        finally:
            admin_ms = administrator.p99_ms()
            for attacker in attackers:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    attacker.wait(5)
                attacker.kill()
                attacker.wait()
        recovered = probes.recover(node, RECOVER_SECONDS_MAX)
        died = node.deaths - deaths
        ratio, bare_ratio = p99_ms / quiet[0], bare_ms / quiet[1]
        self._worst("neighbour_p99_ratio_worst", ratio)
        self._worst("admin_p99_ms", admin_ms)
        self._worst("recover_s", recovered)
        cells = [f"{p99_ms:.2f}", f"{ratio:.1f}", f"{bare_ms:.2f}", f"{bare_ratio:.1f}", str(failed)]
        cells += [f"{admin_ms:.0f}", f"{node.rss_peak / 1e6:.0f}"]
        self.rows.append([name, *cells, f"{recovered:.2f}", str(died), f"{worked:.2f}"])

    def _attacker(self, name: str, node: Node, until: float) -> subprocess.Popen[bytes]:
        target = attacks.Target(
            gate=node.address("gate"),
            api=node.address("api"),
            mqtt=node.address("mqtt"),
            lighter=node.program(),
            data=str(node.folder),
            guests=str(self.guests),
            folder=str(self.folder),
            until=until,
        )
        command = [sys.executable, str(HERE), "--attacker", name, "--target", json.dumps(asdict(target))]
        return subprocess.Popen(self.last.command(command), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def _log_in(self, node: Node, until: float) -> None:
        """Logs in with the right password, again and again; what fails took as long as a client waits."""
        turn = 0
        while time.time() < until:
            began, turn = time.monotonic(), turn + 1
            try:
                mqtt.log_in(node.address("mqtt"), f"good-{turn}", *mqtt.GOOD_USER, 10).close()
                self.logins.append(time.monotonic() - began)
            except (OSError, ValueError, KeyError):
                self.logins.append(10.0)
            time.sleep(0.05)
        self.figures["login_right_password_p99_ms"] = probes.p99(self.logins) * 1e3

    def _cancel_bomb(self, node: Node) -> float:
        """Seconds from Ctrl-C on a deployment that compiles for ever until a good one is through."""
        folder = compiling.project(self.folder, str(self.guests), "cancelled")
        compiling.deploy(node.program(), str(node.folder), folder, 3.0)
        good = durability.project(self.folder / "good", '[function.good]\nimage = "relay.wasm"\n', self.guests, "relay.wasm")
        began = time.monotonic()
        try:
            node.deploy(good)
        except Dead as problem:
            print(f"compile_bomb_cancel_s: {problem}")
            return math.inf
        return time.monotonic() - began

    def _worst(self, name: str, value: float) -> None:
        self.figures[name] = max(self.figures[name] or 0.0, value)

    def measure(self, name: str, what: Callable[[], Any]) -> None:
        """One figure of durability; what could not be measured says why."""
        print(f"{name} …", file=sys.stderr)
        try:
            found = what()
        except FAILURES as problem:
            print(f"{name}: not measured: {problem}")
            return
        value, of = found if isinstance(found, tuple) else (found, None)
        self.figures[name] = value
        print(f"{name}: {value}" + (f" of {of}" if of is not None else ""))

    def promises(self) -> None:
        """What must hold after the node or its disk ended in the middle."""
        lighter, folder, guests = str(Path(self.chosen.lighter).resolve()), self.folder, self.guests
        kills, cuts = (5, 10) if self.chosen.quick else (40, 50)
        self.measure("poison_restarts", lambda: durability.poison_restarts(lighter, folder, guests))
        self.measure("jail_leftovers", lambda: durability.jail_leftovers(lighter, folder, HERE / "apps", sys.executable))
        self.measure("acked_lost", lambda: durability.acked_lost(lighter, folder, guests, kills))
        self.measure("bit_flip_other_writes_refused", lambda: durability.bit_flip_refused(lighter, folder, guests))
        self.measure("webhook_id_changed", lambda: durability.webhook_id_changed(lighter, folder / "power", guests, cuts))

    def report(self) -> int:
        """Prints the table and the figures; the last line is JSON."""
        heads = [
            "attack",
            "p99 ms",
            "p99 / quiet",
            "bare p99 ms",
            "bare / quiet",
            "failed",
            "admin p99 ms",
            "RSS peak MB",
            "well after s",
            "died",
            "attackers' cores",
        ]
        widths = [max(len(row[column]) for row in [heads, *self.rows]) for column in range(len(heads))]
        for row in [heads, *self.rows]:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        missed = shared.figures.report(BARS, self.figures)
        return 0 if self.is_whole and not missed else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="./bench abuse", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="under five minutes: shorter attacks, fewer kills and cuts")
    parser.add_argument("--part", action="append", default=[], help="only this attack, or `promises`; may be repeated")
    parser.add_argument("--lighter", default="build/dist/lighter", help="the node's program")
    parser.add_argument("--bench", default="target/release/bench", help="the program that makes the neighbour's calls")
    parser.add_argument("--guests", default="guests/prebuilt", help="the components")
    parser.add_argument("--attacker", help=argparse.SUPPRESS)
    parser.add_argument("--target", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.attacker:
        attack(chosen.attacker, chosen.target)
        return 0
    chosen.seconds = 4.0 if chosen.quick else 15.0
    names = [name for name in chosen.part if name != "promises"]
    known = {*attacks.all_attacks(), attacks.EVERYTHING}
    if unknown := set(names) - known:
        parser.error(f"there is no part {', '.join(sorted(unknown))}; there are: promises, {', '.join(sorted(known))}")
    print(shared.machine.words())
    with tempfile.TemporaryDirectory(prefix="lighter-abuse-") as folder:
        run = Run(chosen, Path(folder))
        if names or not chosen.part:
            run.try_all(names)
        if not chosen.part or "promises" in chosen.part:
            run.promises()
        return run.report()


def attack(name: str, target: str) -> None:
    """Runs one attack until its time is over."""
    found = json.loads(target)
    for way in ("gate", "api", "mqtt"):
        found[way] = tuple(found[way])
    attacks.all_attacks()[name].run(attacks.Target(**found))


if __name__ == "__main__":
    sys.exit(main())

"""Mail: events for a queue whose home is another node, how fast they come, and whether all do."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

import places
from bench import Bench
from load import Steady, p99
from nodes import Failed, Node, until

#: Data of one event.
DATA: Final = "x" * 100
#: Events of one push, and pushes at once; each is durable before it is confirmed. What is measured is the mail, not they.
BATCH: Final = 50
AT_ONCE: Final = 8
WAITING: Final = 100_000
#: How often it is asked how far the home is while calls are measured: each question is work of the threads that call.
LOOK_SECONDS: Final = 0.2
#: How long calls go on before something happens, so that they can be compared.
QUIET_SECONDS: Final = 5.0


def at_home(home: Node, others: tuple[Node, ...], queue: str = "readings") -> None:
    """The queue has its home at one node, and the others know it."""
    for node in (home, *others):
        node.deploy({"queue": {queue: {"home": home.name, "events_max": 1_000_000}}})


def mail(bench: Bench) -> None:
    """From the first push at one node until the last event is in the queue at the other, each durable at both."""
    events = bench.rounds(20_000, 200_000)
    with bench.cabled() as fleet:
        _, meter, home = fleet.begin("anchor", "meter", "home")
        at_home(home, (meter,))
        meter.ask("POST", "/v1/queues/readings/events", b"0")
        until("mail", lambda: home.ready("readings") == 1)
        command = [str(bench.programs.bench), "client", "http-push", f"{meter.place.local}:{places.API}"]
        command += ["--events", str(events // BATCH), "--window", str(AT_ONCE)]
        command += ["--path", f"/v1/queues/readings/events?count={BATCH}"]
        command += ["--data", DATA, "--header", f"authorization: Bearer {meter.token()}"]
        with subprocess.Popen(meter.place.command(command), stdout=subprocess.PIPE, text=True) as pushing:
            out, _ = pushing.communicate()
            if pushing.returncode != 0:
                raise Failed("the pushes failed")
        pushed = json.loads(out)
        until("all of it", lambda: home.ready("readings") >= events + 1)
        arrived_ns = time.monotonic_ns()
    took, push_took = (1e-9 * (end - pushed["first_ns"]) for end in (arrived_ns, pushed["last_ns"]))
    bench.figures["mail_events_s"] = events / took
    print(f"  {events} events pushed at {events / push_took:.0f}/s; {events / took:.0f}/s until the last is at home")


def arrived(node: Node, queue: str) -> Counter[str]:
    """How often each event's data is in a queue."""
    found: Counter[str] = Counter()
    after = ""
    while True:
        page: dict[str, Any] = node.ask("GET", f"/v1/queues/{queue}/events?limit=1000{after}")
        # Digits alone are a number in JSON too.
        found.update(str(one["event"]["data"]) for one in page["events"])
        if page.get("next") is None:
            return found
        after = f"&after={page['next']}"


def catch_up(bench: Bench) -> None:
    """The cable of the queue's home is out while 100,000 events come, and then in again; calls go on all the time."""
    with bench.cabled() as fleet:
        _, meter, home = fleet.begin("anchor", "meter", "home")
        at_home(home, (meter,))
        component = bench.component("hello-http")
        home.deploy({"function": {"live": {"image": component.stem, "http": "/live"}}}, component)
        until("a call over the cable", lambda: meter.call("/live") == 200)
        with Steady(meter, "/live") as live:
            began = time.monotonic()
            time.sleep(QUIET_SECONDS)
            home.place.cut(True)
            quiet = [call for call in live.between(began, time.monotonic() - 1.0) if call.is_good]
            for _ in range(WAITING // 1_000):
                meter.ask("POST", "/v1/queues/readings/events?count=1000", DATA.encode())
            waited = meter.waiting() + meter.ready("readings")
            home.place.cut(False)
            back = time.monotonic()
            until("all that waited", lambda: home.ready("readings") >= WAITING, 300.0, LOOK_SECONDS)
            done = time.monotonic()
        meanwhile = live.between(back, done)
    good = [call for call in meanwhile if call.is_good]
    first = min((call.ended for call in good), default=done)
    bench.figures["catch_up_100k_s"] = done - back
    after = first - back
    print(
        f"  {waited} events waited; all were at home {done - back:.1f} s after the cable was in, first call after {after:.1f}"
    )
    answered = [call for call in good if call.due >= first]
    if len(answered) < 100 or not quiet:
        bench.unable(["catch_up_live_p99_ratio"], f"only {len(answered)} calls were answered while it caught up")
        return
    bench.figures["catch_up_live_p99_ratio"] = p99(answered) / p99(quiet)
    failed = sum(not call.is_good for call in meanwhile if call.due >= first)
    print(f"  calls: p99 {1e3 * p99(quiet):.1f} ms before, {1e3 * p99(answered):.1f} meanwhile, {failed} failed")


def wiped(bench: Bench) -> None:
    """Events are in the engine, for a node that is away. The anchor dies and the engine's data with it, and all come back."""
    events = bench.rounds(2_000, 20_000)
    with bench.here() as fleet:
        anchor, meter, home = fleet.begin("anchor", "meter", "home")
        if anchor.fleet()["engine"]["process"] is None:
            bench.unable(["engine_wiped_lost"], "the fleet has no engine that could be wiped")
            return
        at_home(home, (meter,))
        home.kill()
        for number in range(events):
            meter.ask("POST", "/v1/queues/readings/events", f"{number}".encode())
        stored = _store_bytes(anchor)
        engine = anchor.fleet()["engine"]["process"]
        anchor.kill()
        until("the end of the engine", lambda: _has_ended(engine))
        shutil.rmtree(anchor.data / "fleet/js")
        anchor.start()
        home.start()
        until("mail", lambda: home.ready("readings") >= 1)
        until("an empty outbox", lambda: meter.waiting() == 0 and meter.ready("readings") == 0)
        found = arrived(home, "readings")
    lost = sum(f"{number}" not in found for number in range(events))
    bench.figures["engine_wiped_lost"] = lost
    doubled = sum(count - 1 for count in found.values())
    print(f"  {events} events, {stored / 1e3:.0f} kB of data wiped: {lost} lost, {doubled} doubled")


def _store_bytes(anchor: Node) -> int:
    """What the engine has on the disk, once it does not grow any more."""
    sizes = [-1]

    def is_still() -> bool:
        sizes.append(sum(file.stat().st_size for file in (anchor.data / "fleet/js").rglob("*") if file.is_file()))
        time.sleep(1.0)
        return sizes[-1] == sizes[-2]

    until("an engine that has all", is_still)
    return sizes[-1]


def _has_ended(process: int) -> bool:
    try:
        return ") Z " in Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return True

"""What it costs to belong to a fleet where nothing happens: memory, bytes, and the size of the program."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import time

from bench import Bench
from nodes import until

from shared.namespaces import Unable


def rss(bench: Bench) -> None:
    """Freshly started nodes alone, and the same nodes freshly started as members."""
    settle = bench.seconds(5.0, 30.0)
    with bench.here() as fleet:
        alone = [fleet.node(f"alone-{number}") for number in range(3)]
        for node in alone:
            node.start()
        time.sleep(settle)
        before = [node.rss_mb() for node in alone]
        own = statistics.median(node.rss_mb("RssAnon") for node in alone)
        for node in alone:
            node.end()
        fleet.nodes.clear()
        nodes = fleet.begin("anchor", "one", "two", "three")
        for node in nodes:
            node.end()
        for node in nodes:
            node.start()
        fleet.wait_heard()
        time.sleep(settle)
        anchor, *after = [node.rss_mb() for node in nodes]
        own = statistics.median(node.rss_mb("RssAnon") for node in nodes[1:]) - own
        engine = nodes[0].fleet()["engine"]["process"]
    bench.figures["fleet_rss_mb"] = statistics.median(after) - statistics.median(before)
    listed = ", ".join(f"{one:.1f}" for one in after)
    print(f"  MB: alone {statistics.median(before):.1f}, members {listed}, anchor {anchor:.1f} without its engine ({engine})")
    print(f"  {own:.1f} MB more are a member's own; the rest is more of the program's file, which is mapped in pieces of 64 kB")


def carried(bench: Bench) -> None:
    """Sent and received by a member, Ethernet's heads included, while nobody calls."""
    seconds = bench.seconds(12.0, 120.0)
    with bench.cabled() as fleet:
        anchor, *members = fleet.begin("anchor", *(f"member-{number}" for number in range(1, 6)))
        until("quiet", lambda: all(node.waiting() == 0 for node in fleet.nodes))
        time.sleep(bench.seconds(5.0, 30.0))
        before = [node.place.carried() for node in fleet.nodes]
        began = time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        rates = [(node.place.carried() - one) / took for node, one in zip(fleet.nodes, before, strict=True)]
    bench.figures["fleet_bytes_node_s"] = statistics.mean(rates[1:])
    listed = ", ".join(f"{one:.0f}" for one in rates[1:])
    print(f"  bytes/s sent and received: {len(members)} members {listed}; {anchor.name} {rates[0]:.0f}")


def binary(bench: Bench) -> None:
    """The program as it is put on machines."""
    if shutil.which("strip") is None:
        raise Unable("strip is not installed (binutils)")
    stripped = bench.folder("binary") / "lighter"
    subprocess.run(["strip", "-o", str(stripped), str(bench.programs.lighter)], check=True)
    size, built = (file.stat().st_size / 1e6 for file in (stripped, bench.programs.lighter))
    bench.figures["binary_mb"] = size
    print(f"  {size:.1f} MB stripped, {built:.1f} as it was built")

"""Nodes that come: how long until a new one is listed, until all run what was deployed, until one starts alone."""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import time
from pathlib import Path
from typing import Final

from bench import Bench
from nodes import Failed, Node, until

NODES: Final = 20
COMPONENT_BYTES: Final = 54_000
FUNCTIONS: Final = 1_000


def join(bench: Bench) -> None:
    """From the start of the program on an empty folder until it takes calls and both sides list each other."""
    took = []
    with bench.here() as fleet:
        (anchor,) = fleet.begin("anchor")
        rounds = bench.rounds(5, 20)
        invitation = fleet.invite(rounds)
        for number in range(rounds):
            node = fleet.node(f"node-{number}")
            began = time.monotonic()
            node.start("--join", invitation)
            until("the anchor to list it", lambda node=node: any(one["name"] == node.name for one in anchor.fleet()["nodes"]))
            until("it to hear of the anchor", lambda node=node: node.heard() >= 2)
            took.append(time.monotonic() - began)
    took.sort()
    bench.figures["join_s"] = took[len(took) // 2]
    print(f"  seconds to join: median {took[len(took) // 2]:.2f}, worst {took[-1]:.2f} of {len(took)}")


def deploy(bench: Bench) -> None:
    """`lighter deploy --fleet` from its start to its end, which is when all nodes answer; each time a new component."""
    took = []
    with bench.here() as fleet:
        anchor, *others = fleet.begin("anchor", *(f"node-{number}" for number in range(1, NODES)))
        for number in range(bench.rounds(3, 10)):
            project, image = _project(bench, bench.component("sift").read_bytes(), '[function.sift]\nimage = "it.wasm"\n')
            began = time.monotonic()
            anchor.lighter("deploy", "--fleet", "--name", "bench", "--quiet", str(project))
            took.append(time.monotonic() - began)
            for node in (anchor, *others):
                if _image(node, "sift") != image:
                    raise Failed(f"{node.name} does not have it when the command has ended, in round {number}")
    bench.figures["deploy_20_nodes_s"] = statistics.median(took)
    print(f"  seconds for {NODES} nodes: " + ", ".join(f"{one:.2f}" for one in took))


def _project(bench: Bench, component: bytes, manifest: str) -> tuple[Path, str]:
    """A folder to deploy from, with a component that no node has seen, and its hash."""
    folder = bench.folder("project")
    image = filled(component)
    (folder / "it.wasm").write_bytes(image)
    (folder / "lighter.toml").write_text(manifest)
    return folder, hashlib.sha256(image).hexdigest()


def filled(component: bytes) -> bytes:
    """The same component, as large as is wanted and unlike all others: what a runtime does not know it skips."""
    name = b"\x05bench"
    room = max(64, COMPONENT_BYTES - len(component) - len(name) - 4)
    section = name + os.urandom(room)
    return component + b"\0" + _leb128(len(section)) + section


def _leb128(number: int) -> bytes:
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _image(node: Node, function: str) -> str:
    about = node.ask("GET", f"/v1/functions/{function}")
    return str(next(one["image"] for one in about["versions"] if one["version"] == about["version"]))


def boot(bench: Bench) -> None:
    """A member that knows a deployment of 1,000 functions is started alone: until it is ready and has answered a call."""
    functions = (f'[function.f{number}]\nimage = "it.wasm"\nhttp = "/f{number}"\n' for number in range(FUNCTIONS))
    ready, answered = [], []
    with bench.here() as fleet:
        anchor, member = fleet.begin("anchor", "member")
        project, _ = _project(bench, bench.component("hello").read_bytes(), "".join(functions))
        anchor.lighter("deploy", "--fleet", "--name", "bench", "--quiet", str(project))
        listed = len(member.ask("GET", "/v1/functions"))
        if listed != FUNCTIONS:
            raise Failed(f"the member has {listed} of {FUNCTIONS} functions")
        anchor.kill()
        for number in range(bench.rounds(5, 15)):
            member.kill()
            began = time.monotonic()
            member.start()
            ready.append(1e3 * (time.monotonic() - began))
            path = f"/f{number}"
            until("an answer", lambda path=path: member.call(path) == 200)
            answered.append(1e3 * (time.monotonic() - began))
        known = json.dumps(member.fleet()["trouble"])
    bench.figures["offline_boot_ms"] = statistics.median(answered)
    print(f"  ms: ready {statistics.median(ready):.0f}, first call answered {statistics.median(answered):.0f}; it says {known}")

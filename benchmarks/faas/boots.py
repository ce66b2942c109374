"""How long it takes until something has been handled: from nothing, from a snapshot, and warm; beside containers.

Ours is `start` and `run` of Server-Timing for a function that does next to nothing: which of the two counts what a unit
takes to begin is another thing in each class. A container is cold until it listens, and warm when it has been resumed and
has answered.
"""

from __future__ import annotations

import contextlib
import lzma
import shutil
import statistics
import time
from pathlib import Path

import beside
from bench import Bench
from latency import FAILURES

import shared.peers
from shared.namespaces import Unable
from shared.node import Client, Node, machines_mb
from shared.spread import HEAD, Spread

#: Functions by name: component, class.
STARTED = (
    ("wasm, Rust", "hello", "wasm"),
    ("microvm, Rust", "hello", "microvm"),
    ("microvm, Python", "hello-py", "microvm"),
    ("microvm, Go", "hello-go", "microvm"),
)
#: Machines at work when their memory is looked at.
MACHINES = 8
FIRST, LATER = "first call of a node", "a new unit each"
FIGURES = {
    "microvm, Rust": "microvm_boot_snapshot_p50_ms",
    "microvm, Python": "microvm_python_start_p50_ms",
    "microvm, Go": "microvm_go_start_p50_ms",
}


def measure(bench: Bench) -> None:
    """A table of what a start takes, by the node's own account, and of what a container takes."""
    rows: list[tuple[str, list[float]]] = []
    for name, component, class_ in STARTED:
        try:
            rows += [(f"lighter, {name}: {how}", took) for how, took in _ours(bench, name, component, class_).items()]
        except (Unable, *FAILURES) as why:
            print(f"  lighter, {name}: not measured: {' '.join(str(why).split())[:200]}")
            bench.unable([FIGURES[name]] if name in FIGURES else [], str(why))
    try:
        rows += [(f"lighter, process: {how}", took) for how, took in _process(bench).items()]
    except (Unable, *FAILURES) as why:
        print(f"  lighter, process: not measured: {why}")
    try:
        shared.peers.program(bench.peers, "crun")
        for how, took in beside.boot_times(bench.folder("boots"), bench.pick(5, 20)).items():
            rows.append((f"container (crun): {how}", took))
    except (Unable, *FAILURES) as why:
        print(f"  container: not measured: {why}")
    print(f"\nuntil it can handle something, in ms\n{'':42} {HEAD}")
    for name, took in rows:
        print(f"{name:42} {Spread.of(took).cells()}")
    try:
        _private(bench)
    except (Unable, *FAILURES) as why:
        print(f"  memory of machines with CPython: not measured: {why}")
        bench.unable(["microvm_python_private_mb"], str(why))


def _private(bench: Bench) -> None:
    """What machines have for themselves in which CPython waits for more of its request."""
    folder = bench.folder("private")
    _component(bench.guests, "hello-py", folder)
    (folder / "lighter.toml").write_text(
        '[function.started]\nisolation = "microvm"\nimage = "hello-py.wasm"\nhttp = "/started"\n'
    )
    node = Node(bench.lighter, folder / "data")
    with node.up():
        node.deploy(folder)
    with node.up(), contextlib.ExitStack() as stack:
        node.learn_gate()
        assert node.process is not None
        begun = []
        for _ in range(MACHINES):
            connection = stack.enter_context(contextlib.closing(node.connect()))
            connection.sendall(b"POST /started HTTP/1.1\r\nhost: here\r\ncontent-length: 2\r\n\r\nx")
            begun.append(connection)
        # They have read what there is by then, and machines that wait ahead of calls have been made again.
        time.sleep(3)
        machines = machines_mb(Path(f"/proc/{node.process.pid}/smaps").read_text())
        for connection in begun:
            connection.sendall(b"x")
            if b"200 OK" not in connection.recv(4_096):
                raise RuntimeError("a function that waited for its request did not reply")
    # Those that wait ahead of calls have at most as much.
    at_work = sorted(machines)[-MACHINES:]
    if len(at_work) < MACHINES:
        raise Unable(f"{MACHINES} machines were at work, and the system knows of {len(machines)}")
    private = statistics.median(at_work)
    print(f"\na machine in which CPython is at work: {private:.1f} MB that are no other's, {max(at_work):.1f} at most")
    bench.figures["microvm_python_private_mb"] = private


def _ours(bench: Bench, name: str, component: str, class_: str) -> dict[str, list[float]]:
    folder = bench.folder("starts")
    _component(bench.guests, component, folder)
    (folder / "lighter.toml").write_text(
        f'[function.started]\nisolation = "{class_}"\nimage = "{component}.wasm"\nhttp = "/started"\n'
    )
    found = _started(bench, folder)
    if name in FIGURES:
        bench.figures[FIGURES[name]] = Spread.of(found[LATER]).p50
    return found


def _process(bench: Bench) -> dict[str, list[float]]:
    folder = bench.folder("starts")
    (folder / "app.py").write_text("def handle(event):\n    return b'hello'\n")
    text = '[function.started]\nisolation = "process"\nimage = "."\nentry = "app:handle"\nhttp = "/started"\n'
    (folder / "lighter.toml").write_text(text)
    return _started(bench, folder)


def _started(bench: Bench, folder: Path) -> dict[str, list[float]]:
    """What the node says of the first call after it was started itself, and of later ones."""
    cold, later = [], []
    node = Node(bench.lighter, folder / "data", ("--allow-weaker-jail",))
    with node.up():
        node.deploy(folder)
    for _ in range(bench.pick(3, 20)):
        with node.up():
            client = _client(node)
            first, *rest = (client.call("started", b"") for _ in range(1 + bench.pick(30, 100)))
            cold.append(first.start + first.run)
            later += [one.start + one.run for one in rest]
            client.close()
    return {FIRST: cold, LATER: later}


def _client(node: Node) -> Client:
    """Of a node that knows its functions from before."""
    node.learn_gate()
    return node.client()


def _component(guests: Path, name: str, folder: Path) -> None:
    plain, packed = guests / f"{name}.wasm", guests / f"{name}.wasm.xz"
    made = folder / f"{name}.wasm"
    if plain.exists():
        shutil.copy(plain, made)
    else:
        made.write_bytes(lzma.decompress(packed.read_bytes()))

"""Restate beside us: three nodes, each event on two of them, and one is killed while events come.

```text
  200 events/s ──▶ ingress of node 1 ──▶ the node that leads the counter's part ──▶ restate.mjs
                                             node 2 is killed
```
A sender that gets no answer tries again with the same key, so Restate itself sees to it that no event counts twice.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from bench import Bench
from nodes import Failed, until

import shared.machine
from shared.namespaces import Unable
from shared.peers import process

ADDRESSES: Final = ("127.9.0.1", "127.9.0.2", "127.9.0.3")
FABRIC, INGRESS, ADMIN = 5122, 8080, 9070
RATE: Final = 200
SENDERS: Final = 32
COUNTERS: Final = 64
#: An answer that takes longer is not waited for: the sender tries again.
ANSWER_SECONDS: Final = 2.0
#: Until all events are answered after the last was due.
END_SECONDS: Final = 120.0


def restate(bench: Bench, program: str) -> None:
    """Prints the longest wait for an answer, and what is lost and doubled."""
    node = shutil.which("node")
    if node is None:
        raise Unable("its service needs Node (Debian: apt-get install nodejs)")
    folder, events = bench.folder("restate"), RATE * bench.rounds(10, 30)
    shutil.copy(Path(__file__).with_suffix(".mjs"), folder / "service.mjs")
    (folder / "node_modules").symlink_to(_modules(program))
    port = shared.machine.free_port()
    with contextlib.ExitStack() as running:
        running.enter_context(process([node, str(folder / "service.mjs"), str(port)], folder / "service.log"))
        nodes = [running.enter_context(_node(program, folder, index)) for index in range(len(ADDRESSES))]
        until("Restate", lambda: _asked(ADMIN, "/deployments", {"uri": f"http://127.0.0.1:{port}"}, 20.0), 60.0)
        until("its counters", lambda: all(_counted(index) >= 0 for index in range(COUNTERS)), 60.0)
        waits = _events(events, lambda: nodes[1].send_signal(signal.SIGKILL))
        counted = sum(_counted(index) for index in range(COUNTERS))
    lost, doubled = max(events - counted, 0), max(counted - events, 0)
    wait_ms = 1e3 * max(waits)
    print(f"    a node of three is killed: {wait_ms:.0f} ms the longest wait; {lost} lost, {doubled} doubled of {events}")


def _modules(program: str) -> Path:
    """The folder of packages that the program lies in."""
    return next(folder for folder in Path(program).parents if folder.name == "node_modules")


@contextlib.contextmanager
def _node(program: str, folder: Path, index: int) -> Iterator[subprocess.Popen[bytes]]:
    address, name = ADDRESSES[index], f"node-{index + 1}"
    settings = {
        "RESTATE_METADATA_CLIENT__ADDRESSES": json.dumps([f"http://{one}:{FABRIC}" for one in ADDRESSES]),
        "RESTATE_DEFAULT_REPLICATION": "2",
        "RESTATE_AUTO_PROVISION": "true" if index == 0 else "false",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_ROCKSDB_TOTAL_MEMORY_SIZE": "256MB",
    }
    command = [program, "--no-logo", "--cluster-name", "bench", "--node-name", name, "--base-dir", str(folder / name)]
    command += ["--bind-ip", address, "--advertised-host", address]
    with process(command, folder / f"{name}.log", env={**os.environ, **settings}) as running:
        yield running


def _events(events: int, kill: Callable[[], None]) -> list[float]:
    """Sends so many, one after another is due; `kill` comes in the middle. Seconds from when each was due to its answer."""
    begin = time.monotonic() + 0.5
    waits: list[float] = []
    numbers = itertools.count()

    def send() -> None:
        while (number := next(numbers)) < events:
            due = begin + number / RATE
            time.sleep(max(0.0, due - time.monotonic()))
            if number == events // 2:
                kill()
            until(f"event {number}", lambda number=number: _add(number), END_SECONDS, every=0.01)
            waits.append(time.monotonic() - due)

    senders = [threading.Thread(target=send) for _ in range(SENDERS)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    if len(waits) < events:
        raise Failed(f"{events - len(waits)} of {events} events got no answer in {END_SECONDS:.0f} s")
    return waits


def _add(number: int) -> bool:
    _asked(INGRESS, f"/counter/{number % COUNTERS}/add", None, ANSWER_SECONDS, {"idempotency-key": f"event-{number}"})
    return True


def _counted(index: int) -> int:
    return int(_asked(INGRESS, f"/counter/{index}/read", None, ANSWER_SECONDS))


def _asked(port: int, path: str, body: object, seconds: float, headers: dict[str, str] | None = None) -> bytes:
    """What the first node answers; raises Failed if that is an error."""
    connection = http.client.HTTPConnection(ADDRESSES[0], port, timeout=seconds)
    try:
        content = b"" if body is None else json.dumps(body).encode()
        kind = {} if body is None else {"content-type": "application/json"}
        connection.request("POST", path, content, {**kind, **(headers or {})})
        reply = connection.getresponse()
        said = reply.read()
    finally:
        connection.close()
    if reply.status >= 300:
        raise Failed(f"Restate: {reply.status} {said[:200]!r}")
    return said

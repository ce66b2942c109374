"""The author of a function, or who controls its calls: memory, time, handles, files and processes, as much as there is."""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from attacks import Attack, Target
from node import Node

#: Calls of an attack at once.
AT_ONCE: Final = 16


def _calls(path: str, *bodies: str) -> Callable[[Target], None]:
    """Calls `path` of the gate with each of the bodies in turn, so many at once."""

    def run(target: Target) -> None:
        def call() -> None:
            turn = 0
            while time.time() < target.until:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    connection = http.client.HTTPConnection(*target.gate, timeout=max(0.1, target.until - time.time()))
                    connection.request("POST", path, bodies[turn % len(bodies)].encode())
                    connection.getresponse().read(1 << 20)
                    connection.close()
                turn += 1

        threads = [threading.Thread(target=call, daemon=True) for _ in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, target.until - time.time()) + 1)

    return run


def loading(target: Target) -> None:
    """Deploys a module that starts processes while it is imported, again and again."""
    while time.time() < target.until:
        with contextlib.suppress(subprocess.TimeoutExpired):
            environment = Node(target.lighter, Path(target.data)).client()
            subprocess.run(
                [target.lighter, "deploy", f"{target.folder}/loading"],
                capture_output=True,
                timeout=max(1.0, target.until - time.time()),
                env=environment,
                check=False,
            )


ATTACKS: Final = [
    Attack("loop", "wasm calls that loop", _calls("/attack", "loop")),
    Attack("memory", "wasm calls that take all memory they get", _calls("/attack", "memory")),
    Attack("log", "wasm calls that flood the log", _calls("/attack", "log-flood")),
    Attack("replies", "wasm calls that reply 64 MiB", _calls("/attack", "big-reply")),
    Attack("pushes", "wasm calls that push events of 7 MB without end", _calls("/attack", "push-big 7000000")),
    Attack("resources", "wasm calls that keep every kind of handle, full", _calls("/keep-resources", "")),
    Attack("aliases", "process calls whose frames name 16 MiB 300 times", _calls("/hostile", "aliases"), ("hostile",)),
    Attack("scratch", "process calls that fill their scratch and lock it", _calls("/hostile", "scratch"), ("hostile",)),
    Attack("locked", "process calls that lock their own folder", _calls("/hostile", "locked"), ("hostile",)),
    Attack("chains", "process calls that leave 1,500 nested folders", _calls("/hostile", "chains"), ("hostile",)),
    Attack("processes", "process calls that start processes", _calls("/hostile", "processes"), ("hostile",)),
    Attack("asking", "process calls that ask the node without end", _calls("/hostile", "asking"), ("hostile",)),
    Attack("loading", "deployments whose import starts 60 processes", loading, ("hostile",)),
]

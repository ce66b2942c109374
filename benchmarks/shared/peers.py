"""The programs beside us, as `benchmarks/peers` found them, and how one runs while it is needed."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shared.namespaces import Unable

#: By name: path and version, or `-` and why it is missing.
Peers = dict[str, tuple[str, str]]


def read(file: Path | None) -> Peers:
    """What `benchmarks/peers` printed into a file."""
    found = {}
    if file is not None:
        for line in file.read_text().splitlines():
            name, path, version = line.split("\t", 2)
            found[name] = (path, version)
    return found


def program(peers: Peers, name: str) -> str:
    """Where it is. Raises Unable with why it is missing."""
    path, version = peers.get(name, ("-", "benchmarks/peers was not asked for it"))
    if path == "-":
        raise Unable(f"{name} could not be had: {version}")
    return path


@contextlib.contextmanager
def process(command: list[str], log: Path, **more: Any) -> Iterator[subprocess.Popen[Any]]:
    """A program that ends when this is left."""
    with log.open("ab") as file:
        made = subprocess.Popen(command, stdin=subprocess.DEVNULL, **{"stdout": file, "stderr": file, **more})
    try:
        yield made
    finally:
        made.kill()
        made.wait()

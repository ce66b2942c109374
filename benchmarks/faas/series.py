"""Requests a second of the smallest `wasi:http` function for WASI 0.3, beside the one for 0.2, in class wasm.

Both are in Rust, get a fresh unit each time and are asked by the same load generator, in turns, of one node.
"""

from __future__ import annotations

import shutil
from typing import Final

from bench import Bench
from rates import compare, in_turns

from shared.node import Node

FIGURE: Final = "wasi03_http_vs_02"
#: Functions by what they are written for.
COMPONENTS: Final = {"wasi:http 0.3": "hello-http03", "wasi:http 0.2": "hello-http"}


def measure(bench: Bench) -> None:
    """0.3 over 0.2."""
    compare(bench, FIGURE, _rates)


def _rates(bench: Bench) -> dict[str, list[float]]:
    folder = bench.folder("series")
    manifest = ""
    for component in COMPONENTS.values():
        shutil.copy(bench.guests / f"{component}.wasm", folder)
        manifest += f'[function.{component}]\nimage = "{component}.wasm"\nhttp = "/{component}"\n'
    (folder / "lighter.toml").write_text(manifest)
    node = Node(bench.lighter, folder / "data")
    with node.up():
        node.deploy(folder)
        return in_turns(bench, {name: node.url(component) for name, component in COMPONENTS.items()})

"""One run of the benchmark: its programs, its figures, and why some of them are missing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from shared.peers import Peers

BARS: Final = {
    "co2_p50_ms": ("<=", 2),
    "co2_microvm_p50_ms": ("<=", 4),
    "co2_vs_best_peer": (">=", 3),
    "workloads_vs_best_peer": (">=", 3),
    "microvm_boot_snapshot_p50_ms": ("<=", 0.6),
    "microvm_python_start_p50_ms": ("<=", 2),
    "microvm_go_start_p50_ms": ("<=", 2),
    "microvm_python_private_mb": ("<=", 8),
    "microvm_http_rust_vs_wasmtime_serve": (">=", 1),
    "units_10_memory_growth": ("<=", 1.1),
    "units_10_cpu_growth": ("<=", 10),
    "wasi03_http_vs_02": (">=", 0.9),
}


class Bench:
    """What the parts share."""

    def __init__(self, lighter: Path, guests: Path, folder: Path, is_quick: bool, peers: Peers, load: Path | None) -> None:
        """`load`: the program whose `load` sends requests."""
        self.lighter, self.guests, self.is_quick, self.peers, self.load = lighter, guests, is_quick, peers, load
        self.figures: dict[str, float] = {}
        self.reasons: dict[str, str] = {}
        self._folder = folder
        self._count = 0

    def pick(self, quick: int, whole: int) -> int:
        return quick if self.is_quick else whole

    def folder(self, name: str) -> Path:
        """A new folder, which nothing else uses."""
        self._count += 1
        made = self._folder / f"{self._count}-{name.replace(' ', '-').replace(',', '')}"
        made.mkdir()
        return made

    def unable(self, names: Iterable[str], why: str) -> None:
        """These figures are missing, unless they were measured before."""
        for name in names:
            self.reasons.setdefault(name, " ".join(why.split())[:300])

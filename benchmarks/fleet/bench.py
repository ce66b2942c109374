"""One run of the benchmark: its programs, its figures, and why some of them are missing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from nodes import Fleet, Programs, closing
from places import Loopback, Network, Place

BARS: Final = {
    "join_s": ("<=", 3),
    "forward_added_p50_ms": ("<=", 0.4),
    "forward_vs_direct": (">=", 0.5),
    "deploy_20_nodes_s": ("<=", 5),
    "offline_boot_ms": ("<=", 500),
    "mail_events_s": (">=", 5_000),
    "mail_lost": ("<=", 0),
    "mail_doubled": ("<=", 0),
    "catch_up_100k_s": ("<=", 30),
    "catch_up_live_p99_ratio": ("<=", 2),
    "engine_wiped_lost": ("<=", 0),
    "node_killed_gap_ms": ("<=", 1_000),
    "anchor_killed_calls_failed": ("<=", 0),
    "fleet_rss_mb": ("<=", 4),
    "fleet_bytes_node_s": ("<=", 1_000),
    "binary_mb": ("<=", 40),
    "sim_nodes": (">=", 10_000),
    "sim_regret_mean": ("<=", 0.3),
    "choice_us": ("<=", 5),
    "plan_ms_10000": ("<=", 50),
}


class Bench:
    """What the parts share."""

    def __init__(self, programs: Programs, folder: Path, is_quick: bool, peers: dict[str, tuple[str, str]]) -> None:
        self.programs, self.is_quick, self.peers = programs, is_quick, peers
        self.figures: dict[str, float] = {}
        self.reasons: dict[str, str] = {}
        self._folder = folder
        self._fleets = 0

    def rounds(self, quick: int, otherwise: int) -> int:
        return quick if self.is_quick else otherwise

    def seconds(self, quick: float, otherwise: float) -> float:
        return quick if self.is_quick else otherwise

    def component(self, name: str) -> Path:
        return self.programs.guests / f"{name}.wasm"

    def folder(self, name: str) -> Path:
        """A new folder, which nothing else uses."""
        self._fleets += 1
        made = self._folder / f"{self._fleets}-{name}"
        made.mkdir()
        return made

    def unable(self, names: Iterable[str], why: str) -> None:
        """These figures are missing, unless they were measured before."""
        for name in names:
            self.reasons.setdefault(name, " ".join(why.split()))

    @contextlib.contextmanager
    def here(self) -> Iterator[Fleet]:
        """A fleet on addresses of this machine."""
        with closing(self._fleet(Loopback)) as fleet:
            yield fleet

    @contextlib.contextmanager
    def cabled(self) -> Iterator[Fleet]:
        """A fleet in which each node has a cable of its own. Raises Unable where that cannot be."""
        with Network() as network, closing(self._fleet(network.place)) as fleet:
            yield fleet

    def _fleet(self, place: Callable[[], Place]) -> Fleet:
        return Fleet(self.programs, self.folder("fleet") / "nodes", place)

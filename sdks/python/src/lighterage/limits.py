"""What one call on a node may use."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What one call on a node may use. The node says no by its own limits beyond these."""

    #: Wall time of one call there, in seconds.
    seconds: float = 300.0
    memory_bytes: int = 2 << 30
    #: Bytes of the arguments, and of the result. That is what a node has room for, of all calls together, unless it is set.
    body_bytes: int = 256 << 20
    #: Calls of this function that one node runs at once, and that wait there.
    concurrency: int = 64
    waiting: int = 1_000

    def as_manifest(self) -> dict[str, int]:
        milliseconds = max(1, round(self.seconds * 1_000))
        return {
            "time_ms": milliseconds,
            # Threads of numerical libraries use several processors.
            "cpu_ms": min(milliseconds * 16, 86_400_000),
            "memory_bytes": self.memory_bytes,
            "body_bytes": self.body_bytes,
            "concurrency": self.concurrency,
            "waiting": self.waiting,
            "wait_ms": min(milliseconds, 3_600_000),
        }

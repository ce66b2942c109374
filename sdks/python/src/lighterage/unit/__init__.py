"""What code inside a process unit imports: the event it handles, how it fails, and the host's verbs.

    from lighterage.unit import Event, Retry, store

    def handle(event: Event) -> bytes:
        return str(store.increment("counters", event.data.decode(), 1)).encode()

The verbs are those of `contracts/wit/unit.wit`. All that one handling does to stores and queues is one transaction: it
becomes visible and durable when the handler returns, or not at all.

Handlers that were written for AWS Lambda or OpenWhisk become such handlers with `lighterage.unit.foreign`.
"""

from __future__ import annotations

from .api import (
    Denied,
    Event,
    Fatal,
    Invalid,
    Malformed,
    Page,
    Refused,
    Response,
    Retry,
    Unavailable,
    clock,
    config,
    http,
    log,
    queue,
    random,
    store,
)

__all__ = [
    "Denied",
    "Event",
    "Fatal",
    "Invalid",
    "Malformed",
    "Page",
    "Refused",
    "Response",
    "Retry",
    "Unavailable",
    "clock",
    "config",
    "http",
    "log",
    "queue",
    "random",
    "store",
]

"""The same functions as handlers of our class `process`: their state is in the node's store, what they push in its queues."""

from __future__ import annotations

import json
from collections.abc import Callable

import work
from lighterage.unit import Event, queue, store


def _handler(name: str, bucket: str) -> Callable[[Event], bytes]:
    def handle(event: Event) -> bytes:
        topic = event.subject or ""
        key = topic.split("/")[-2] if "/" in topic else topic
        kept = store.get(bucket, key) if bucket else None
        state, out = work.FUNCTIONS[name](
            {"topic": topic, "data": event.data.decode()}, None if kept is None else json.loads(kept)
        )
        if bucket:
            store.set(bucket, key, json.dumps(state))
        for to, subject, data in out:
            queue.push(to, data, type="work", subject=subject, content_type="application/json")
        return b""

    return handle


motion = _handler("motion", "lights")
weigh = _handler("weigh", "health-weights")
smoke = _handler("smoke", "alert")
count = _handler("count", "fridge")
fibonacci = _handler("fibonacci", "")
threshold = _handler("threshold", "co2")
notify = _handler("notify", "")
logger = _handler("logger", "readings")

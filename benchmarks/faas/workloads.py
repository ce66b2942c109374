"""The workloads: what a source publishes, and how the sink knows to which event what it hears belongs.

Each event is of a device of its own, so a result belongs to the event of the device that it names.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from webhook import Webhook

from shared.mqtt import Publisher

#: What an event that is not through after so long never will be.
THROUGH_SECONDS: Final = 30.0
#: Between events that are sent one at a time.
PAUSE_SECONDS: Final = 0.02
BURST: Final = 100
TIME: Final = "2026-11-21T08:00:00Z"

#: Which function handles the messages of which filters, first; then that of each queue.
STEPS: Final = {
    "motion": "home/+/motion",
    "weigh": "health/+/weight",
    "smoke": "home/+/smoke",
    "count": "fridge/+/door",
    "fibonacci": "fibonacci/ask/+",
    "threshold": "device/sck/+/readings",
}
HANDLED: Final = {"alerts": "notify", "log": "logger"}
#: Queues whose events leave: to a topic, or to the webhook.
TOPICS: Final = {
    "bulbs": "home/{}/bulb",
    "progress": "health/{}/progress",
    "counts": "fridge/{}/count",
    "habits": "fridge/{}/habits",
    "answers": "fibonacci/answer/{}",
}
WEBHOOKS: Final = ("alarms", "slack")


@dataclass(frozen=True)
class Workload:
    """What is published for a device, and where its result is heard."""

    name: str
    topic: str
    payload: Callable[[str], str]
    #: The filter of its results; the webhook hears those of others.
    result: str | None


def _json(**fields: object) -> str:
    return json.dumps(fields)


def _kit(_: str) -> str:
    sensors = [{"id": 158, "value": 1_200}, {"id": 55, "value": 21.5}, {"id": 53, "value": 40.1}]
    return _json(data=[{"recorded_at": TIME, "sensors": sensors}], slack={"channel": "#air"})


ALL: Final = (
    Workload("lights", "home/{}/motion", lambda _: _json(sequence=1, motion=True), "home/+/bulb"),
    Workload("health", "health/{}/weight", lambda _: _json(time=TIME, weight=71.5, unit="kg"), "health/+/progress"),
    Workload("alert", "home/{}/smoke", lambda _: _json(sequence=1, density=0.3, unit="1/m"), None),
    Workload("fridge", "fridge/{}/door", lambda _: _json(sequence=1, open=True, time=TIME), "fridge/+/count"),
    Workload("fibonacci", "fibonacci/ask/{}", lambda _: "20", "fibonacci/answer/+"),
    Workload("co2", "device/sck/{}/readings", _kit, None),
)
RESULTS: Final = tuple(one.result for one in ALL if one.result is not None)
#: Where the device stands in the topic of a result, or in the body of a webhook.
_IN_BODY: Final = re.compile(rb"\b(d\d+x)\b")


class Sink:
    """Hears results, at a subscriber and at a webhook, and when."""

    def __init__(self) -> None:
        self._came: dict[str, float] = {}
        #: Why nothing more may come.
        self._failure = ""
        self._changed = threading.Condition()
        self.webhook = Webhook(lambda body, now: self._note(_IN_BODY.search(body), now))

    def hear(self, topic: str, _: bytes, now: float) -> None:
        self._note(_IN_BODY.search(topic.encode()), now)

    def _note(self, found: re.Match[bytes] | None, now: float) -> None:
        if found is not None:
            with self._changed:
                self._came.setdefault(found[1].decode(), now)
                self._changed.notify_all()

    def fail(self, why: str) -> None:
        """Nobody need wait any more for what is not here yet."""
        with self._changed:
            self._failure = self._failure or why
            self._changed.notify_all()

    def wait(self, devices: Sequence[str]) -> list[float]:
        """When the result of each came. Raises TimeoutError with how many are missing, and why."""

        def is_over() -> bool:
            return bool(self._failure) or all(one in self._came for one in devices)

        with self._changed:
            self._changed.wait_for(is_over, THROUGH_SECONDS)
            if missing := sum(one not in self._came for one in devices):
                why = self._failure or f"they had {THROUGH_SECONDS:g} s"
                raise TimeoutError(f"{missing} of {len(devices)} events were not through: {why}")
            return [self._came[one] for one in devices]


class Source:
    """Publishes events of a workload and says in milliseconds how long each took to the sink."""

    def __init__(self, broker: tuple[str, int], sink: Sink) -> None:
        self._publisher = Publisher(broker, "source")
        self._sink = sink
        self._count = 0

    def _events(self, workload: Workload, count: int) -> tuple[list[str], list[tuple[str, bytes]]]:
        devices = [f"d{self._count + number}x" for number in range(count)]
        self._count += count
        return devices, [(workload.topic.format(one), workload.payload(one).encode()) for one in devices]

    def one_at_a_time(self, workload: Workload, count: int, pause: float = PAUSE_SECONDS) -> list[float]:
        """The next one some time after the last is through."""
        took = []
        for _ in range(count):
            devices, messages = self._events(workload, 1)
            began = time.perf_counter()
            self._publisher.publish(messages)
            took.append((self._sink.wait(devices)[0] - began) * 1e3)
            time.sleep(pause)
        return took

    def burst(self, workload: Workload, size: int = BURST) -> list[float]:
        """All at once; each counts from when they were sent."""
        devices, messages = self._events(workload, size)
        began = time.perf_counter()
        self._publisher.publish(messages)
        return [(came - began) * 1e3 for came in self._sink.wait(devices)]

    def close(self) -> None:
        self._publisher.close()

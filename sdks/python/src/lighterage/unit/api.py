"""The verbs of a unit's host, and the words in which a handler says how it ended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ..travel.frame import Buffer, Frame, FrameError
from . import link

#: Bytes of one call to `random.bytes`.
RANDOM_BYTES_MAX: Final = 65_536
#: Extension attributes of one event.
ATTRIBUTES_MAX: Final = 128


@dataclass(frozen=True)
class Event:
    """Something that happened: a CloudEvents 1.0 record."""

    id: str
    source: str
    type: str
    time_ms: int
    attempt: int
    data: bytes
    subject: str | None = None
    content_type: str | None = None
    #: Extension attributes in the order they arrived.
    attributes: tuple[tuple[str, str], ...] = ()

    def attribute(self, name: str) -> str | None:
        """The value of an extension attribute."""
        return next((value for key, value in self.attributes if key == name), None)


def event_in(found: Frame, kind: int) -> Event:
    """The event in a frame of this kind.

    Raises FrameError where it is of another kind, or holds none.
    """
    if found.kind != kind:
        raise FrameError("record-kind", str(found.kind))
    return event_of(found.body)


def event_of(record: Any) -> Event:
    """The event that a frame's body is.

    Raises FrameError with the first field that is not as the contract says.
    """
    if type(record) is not dict:
        raise FrameError("record-field", "no map")
    for name, value in record.items():
        is_right = _FIELDS.get(name)
        if is_right is None or not is_right(value):
            raise FrameError("record-field", str(name))
    if "type" not in record:
        raise FrameError("record-field", "type")
    data = record.get("data", b"")
    return Event(
        id=record.get("id", ""),
        source=record.get("source", ""),
        type=record["type"],
        time_ms=record.get("time-ms", 0),
        attempt=record.get("attempt", 1),
        data=data if type(data) is bytes else bytes(data.data),
        subject=record.get("subject"),
        content_type=record.get("content-type"),
        attributes=tuple((name, value) for name, value in record.get("attributes", ())),
    )


def _is_text(value: Any) -> bool:
    return type(value) is str


def _are_attributes(value: Any) -> bool:
    return (
        type(value) is list
        and len(value) <= ATTRIBUTES_MAX
        and all(type(pair) is list and len(pair) == 2 and _is_text(pair[0]) and _is_text(pair[1]) for pair in value)
    )


#: What each field of an event record may be.
_FIELDS: Final[dict[str, Callable[[Any], bool]]] = {
    "id": _is_text,
    "source": _is_text,
    "type": _is_text,
    "subject": _is_text,
    "time-ms": lambda value: type(value) is int and value >= 0,
    "content-type": _is_text,
    "attributes": _are_attributes,
    "attempt": lambda value: type(value) is int and 0 <= value < 1 << 32,
    "data": lambda value: type(value) in (Buffer, bytes),
}


class Failure(Exception):
    """Why a handler did not do its work. Everything it wrote in this handling is undone."""

    kind = "fatal"


class Invalid(Failure):
    """The event can never be handled: to the dead letters at once."""

    kind = "invalid"


class Retry(Failure):
    """It may work later."""

    kind = "retry"


class Fatal(Failure):
    """It failed and trying again is no use."""

    kind = "fatal"


class Refused(Exception):
    """The host refused what was asked for."""


class Denied(Refused):
    """No grant in the manifest covers it. Says which grant would."""


class Malformed(Refused):
    """An argument is malformed or over a limit. Says which limit."""


class Unavailable(Refused):
    """The host could not do it now. It may or may not have happened."""


_REFUSALS: Final = {"denied": Denied, "invalid": Malformed, "unavailable": Unavailable}


def _ask(verb: str, *arguments: Any) -> Any:
    try:
        return link.current().ask(verb, list(arguments))
    except link.HostFailure as failure:
        raise _REFUSALS.get(failure.kind, Refused)(failure.message) from None


@dataclass(frozen=True)
class Page:
    """Entries of a bucket in byte order of their keys; `next` is passed as `after` to read on."""

    entries: list[tuple[str, bytes]]
    next: str | None


class _Store:
    """Durable key-value buckets. Needs the grant `stores`."""

    def get(self, bucket: str, key: str) -> bytes | None:
        value: bytes | None = _ask("store.get", bucket, key)
        return value

    def set(self, bucket: str, key: str, value: bytes | str) -> None:
        _ask("store.set", bucket, key, _bytes(value))

    def set_with_ttl(self, bucket: str, key: str, value: bytes | str, ttl_ms: int) -> None:
        _ask("store.set-with-ttl", bucket, key, _bytes(value), ttl_ms)

    def delete(self, bucket: str, key: str) -> None:
        _ask("store.delete", bucket, key)

    def increment(self, bucket: str, key: str, delta: int = 1) -> int:
        total: int = _ask("store.increment", bucket, key, delta)
        return total

    def compare_and_set(self, bucket: str, key: str, expected: bytes | None, value: bytes | None) -> bool:
        did: bool = _ask("store.compare-and-set", bucket, key, expected, value)
        return did

    def list(self, bucket: str, prefix: str = "", after: str | None = None, limit: int = 100) -> Page:
        page = _ask("store.list", bucket, prefix, after, limit)
        return Page([(key, value) for key, value in page["entries"]], page["next"])


class _Queue:
    """Durable queues. `push` needs the grant `push`, `pop` the grant `pop`."""

    def push(
        self,
        queue: str,
        data: bytes | str = b"",
        *,
        type: str = "event",
        subject: str | None = None,
        content_type: str | None = None,
        attributes: Iterable[tuple[str, str]] = (),
        delay_ms: int | None = None,
        ttl_ms: int | None = None,
    ) -> None:
        """Pushes an event. The host adds id, source and time."""
        _ask(
            "queue.push",
            queue,
            outgoing(
                data,
                type=type,
                subject=subject,
                content_type=content_type,
                attributes=attributes,
                delay_ms=delay_ms,
                ttl_ms=ttl_ms,
            ),
        )

    def push_all(self, queue: str, events: Sequence[dict[str, Any]]) -> None:
        """Pushes events in this order; each is what `outgoing` makes."""
        _ask("queue.push-all", queue, list(events))

    def pop(self, queue: str) -> Event | None:
        """Takes the oldest event that is ready; none if there is none."""
        record = _ask("queue.pop", queue)
        return None if record is None else event_of(record)

    @staticmethod
    def outgoing(data: bytes | str = b"", **fields: Any) -> dict[str, Any]:
        """An event for `push_all`, with the keywords of `push`."""
        return outgoing(data, **fields)


def outgoing(
    data: bytes | str = b"",
    *,
    type: str = "event",
    subject: str | None = None,
    content_type: str | None = None,
    attributes: Iterable[tuple[str, str]] = (),
    delay_ms: int | None = None,
    ttl_ms: int | None = None,
) -> dict[str, Any]:
    """An event to be pushed, as a value of the frame."""
    return {
        "type": type,
        "subject": subject,
        "content-type": content_type,
        "attributes": [[name, value] for name, value in attributes],
        "data": _bytes(data),
        "delay-ms": delay_ms,
        "ttl-ms": ttl_ms,
    }


class _Log:
    """Lines in the function's log."""

    def write(self, level: str, message: str) -> None:
        link.current().tell("log.write", [level, message])

    def trace(self, message: str) -> None:
        self.write("trace", message)

    def debug(self, message: str) -> None:
        self.write("debug", message)

    def info(self, message: str) -> None:
        self.write("info", message)

    def warn(self, message: str) -> None:
        self.write("warn", message)

    def error(self, message: str) -> None:
        self.write("error", message)


class _Clock:
    """The time. Asks nobody."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_ns(self) -> int:
        """Nanoseconds from a start of its own; never goes back."""
        return time.monotonic_ns()


class _Random:
    """Unpredictable bytes of the operating system."""

    def bytes(self, count: int) -> bytes:
        if not 0 <= count <= RANDOM_BYTES_MAX:
            raise ValueError(f"random.bytes: {count} bytes asked for, the limit is {RANDOM_BYTES_MAX}")
        return os.urandom(count)


class _Config:
    """Values from the manifest (`config`) and secrets (`grants.secrets`) by name."""

    def get(self, name: str) -> str | None:
        value: str | None = _ask("config.get", name)
        return value


@dataclass(frozen=True)
class Response:
    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""


class _Http:
    """Outgoing HTTP, whole request and whole response. Needs the grant `hosts`."""

    def send(
        self,
        method: str,
        url: str,
        *,
        headers: Iterable[tuple[str, str]] = (),
        body: bytes | str = b"",
        timeout_ms: int | None = None,
    ) -> Response:
        pairs = [[name, value] for name, value in headers]
        request = {"method": method, "url": url, "headers": pairs, "body": _bytes(body), "timeout-ms": timeout_ms}
        reply = _ask("http.send", request)
        return Response(reply["status"], [(name, value) for name, value in reply["headers"]], reply["body"])


def _bytes(value: bytes | bytearray | memoryview | str) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


store = _Store()
queue = _Queue()
log = _Log()
clock = _Clock()
random = _Random()
config = _Config()
http = _Http()

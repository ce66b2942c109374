"""The smallest handler: greets the name in the data."""

from lighterage.unit import Event


def handle(event: Event) -> bytes:
    return b"hello, " + (event.data or b"world") + b"\n"

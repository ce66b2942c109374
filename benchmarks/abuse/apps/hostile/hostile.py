"""A process function that does what its caller says, all of it bad."""

import os
import time

from lighterage.travel import frame
from lighterage.unit import Event, config, queue


def handle(event: Event) -> str:
    word = event.data.decode()
    return {
        "aliases": _aliases,
        "scratch": _scratch,
        "locked": _locked,
        "chains": _chains,
        "processes": _processes,
        "asking": _asking,
        "sleep": _sleep,
    }[word]()


def _aliases() -> str:
    """One buffer, named by 300 events."""
    data = memoryview(bytes(16 << 20))
    kept = frame.Writer._buffer

    def once(writer: frame.Writer, found: memoryview) -> int:
        return 0 if writer.buffers else kept(writer, found)

    frame.Writer._buffer = once
    event = queue.outgoing(b"")
    queue.push_all("nowhere", [{**event, "data": frame.Buffer(data)} for _ in range(300)])
    return "pushed"


def _scratch() -> str:
    os.mkdir("left")
    with open("left/file", "wb") as file:
        for _ in range(40):
            file.write(bytes(1 << 20))
    os.chmod("left", 0)
    return "left"


def _locked() -> str:
    os.chmod(".", 0)
    return "locked"


def _chains() -> str:
    for _ in range(1_500):
        os.mkdir("d")
        os.chdir("d")
    return "left"


def _processes() -> str:
    for _ in range(200):
        if os.fork() == 0:
            while True:
                pass
    return "started"


def _asking() -> str:
    while True:
        config.get("nothing")


def _sleep() -> str:
    time.sleep(20)
    return "slept"

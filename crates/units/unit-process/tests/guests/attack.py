"""A function that misbehaves as its data says, to show that a node and its neighbours do not care.

The data is `WORD` or `WORD NUMBER`; the words are those of `guests/attack`, and some that only a process can say.
"""

import ctypes
import os
import sys

import escapes
from lighterage.unit import Denied, Event, Fatal, Invalid, Malformed, Retry, Unavailable, config, log, queue, random, store

#: The queue it pushes to and pops from.
OUT = "attacked"

calls = 0


def handle(event: Event) -> bytes | str:
    word, _, rest = event.data.decode().partition(" ")
    number = int(rest) if rest.isdigit() else None
    try:
        return WORDS[word](event, number, rest)
    except KeyError:
        raise Invalid(f"the data is one of: {' '.join(WORDS)}") from None
    except (Denied, Malformed) as error:
        raise Fatal(str(error)) from None
    except Unavailable as error:
        raise Retry(str(error)) from None


def spin(*_: object) -> bytes:
    while True:
        pass


def recurse(*_: object) -> bytes:
    def deeper(depth: int) -> int:
        return deeper(depth + 1) + depth

    return str(deeper(1)).encode()


def exhaust_memory(*_: object) -> bytes:
    taken = []
    while True:
        taken.append(b"\1" * (1 << 20))


def flood_log(_event: Event, lines: int | None, _rest: str) -> bytes:
    for line in range(lines or 1 << 40):
        log.info(f"line {line} of a flood {'x' * 200}")
    return b""


def flood_output(_event: Event, count: int | None, _rest: str) -> bytes:
    block = b"x" * 1_023 + b"\n"
    for _ in range((count or 1 << 40) // len(block)):
        os.write(1, block)
    return b"all written"


def panic(*_: object) -> bytes:
    raise ValueError("asked to panic")


def read_out_of_bounds(*_: object) -> bytes:
    return ctypes.string_at(16, 4)


def host_loop(*_: object) -> bytes:
    while True:
        config.get("nothing")


def remember(*_: object) -> str:
    global calls
    calls += 1
    return str(calls)


def flood_store(_event: Event, keys: int | None, _rest: str) -> bytes:
    for key in range(keys or 1 << 40):
        store.set("attack", f"flood/{key}", b"x" * (64 << 10))
    return b""


def write(value: str = "written") -> str:
    store.set("attack", "key", value)
    return value


def push(_event: Event, count: int | None, _rest: str) -> str:
    write("pushed")
    events = [queue.outgoing(str(number), **ABOUT) for number in range(1, (1 if count is None else count) + 1)]
    if events:
        queue.push(OUT, "1", **ABOUT)
    queue.push_all(OUT, events[1:])
    return "pushed"


ABOUT = {
    "type": "attack.pushed",
    "subject": "attack",
    "content_type": "text/plain",
    "attributes": [("partitionkey", "a")],
}


def push_big(_event: Event, size: int | None, _rest: str) -> bytes:
    queue.push(OUT, b"x" * (size or 16 << 20), **ABOUT)
    return b""


def pop(*_: object) -> bytes:
    event = queue.pop(OUT)
    return b"nothing" if event is None else event.data


def then(first: object, last: object) -> object:
    def both(*arguments: object) -> object:
        first(*arguments)
        return last(*arguments)

    return both


def fail(kind: type[Exception], why: str) -> object:
    def raises(*_: object) -> bytes:
        raise kind(why)

    return raises


def abort(*_: object) -> bytes:
    os.abort()


def escape(_event: Event, _number: int | None, name: str) -> str:
    return escapes.ALL[name]()


def garble(*_: object) -> bytes:
    os.write(0, b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000000\r\n\r\n" * 10)
    return b"unheard"


def announce(*_: object) -> bytes:
    """A frame whose header is right, and announces 2⁶² bytes."""
    import struct
    import zlib

    head = struct.pack("<4sBBHQQIIII20s", b"\x8cLFR", 1, 2, 0, 1 << 62, 1, 1, 0, 0, 0, bytes(20))
    os.write(0, head + struct.pack("<I", zlib.crc32(head)))
    return b"unheard"


def lend(_event: Event, _number: int | None, rest: str) -> bytes:
    """Says that its reply lies at these places of its memory, as `address+bytes` one after the other."""
    from lighterage import frame

    places = [[int(number) for number in place.split("+")] for place in rest.split()]
    os.write(0, b"".join(frame.encode(places, kind=frame.REPLY, id=2)))
    return b"unheard"


def lend_another_frame(*_: object) -> bytes:
    """Where it says that its reply lies, there is a frame, but none that is a reply."""
    from lighterage import frame

    _another = bytearray(b"".join(frame.encode(None, kind=frame.EVENT, id=1)))
    address = ctypes.addressof((ctypes.c_char * len(_another)).from_buffer(_another))
    os.write(0, b"".join(frame.encode([[address, len(_another)]], kind=frame.REPLY, id=2)))
    while True:
        pass


WORDS = {
    "loop": spin,
    "recurse": recurse,
    "memory": exhaust_memory,
    "log-flood": flood_log,
    "print-flood": flood_output,
    "panic": panic,
    "unreachable": abort,
    "out-of-bounds": read_out_of_bounds,
    "big-reply": lambda _event, size, _rest: b"x" * (64 << 20 if size is None else size),
    "random-huge": lambda _event, size, _rest: random.bytes(1 << 30 if size is None else size),
    "clock-loop": host_loop,
    "remember": remember,
    "store-flood": flood_store,
    "store-set": lambda *_: write(),
    "store-set-then-trap": then(lambda *_: write("must never be seen"), abort),
    "invalid": fail(Invalid, "asked to be invalid"),
    "retry": fail(Retry, "asked to be retried"),
    "fatal": fail(Fatal, "asked to be fatal"),
    "count": lambda *_: str(store.increment("attack", "count", 1)),
    "push": push,
    "push-then-trap": then(push, abort),
    "push-then-retry": then(push, fail(Retry, "asked to be retried")),
    "push-big": push_big,
    "pop": pop,
    "pop-then-trap": then(pop, abort),
    "exit": lambda *_: sys.exit(3),
    "exit-hard": lambda *_: os._exit(3),
    "garble": garble,
    "announce": announce,
    "lend": lend,
    "lend-another-frame": lend_another_frame,
    "escape": escape,
}

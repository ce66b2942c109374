"""Components that are dear to compile: a good one, with a function added whose loops and locals no compiler likes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

CORE_MODULE: Final = 1
TYPES, FUNCTIONS, CODE = 1, 3, 10
MAGIC_BYTES: Final = 8


def make(good: Path, depth: int, locals_count: int) -> bytes:
    """The component `good`, with a function more: `depth` nested loops around `locals_count` locals."""
    data = good.read_bytes()
    out = bytearray(data[:MAGIC_BYTES])
    is_first = True
    for number, body in _sections(data):
        if number == CORE_MODULE and is_first:
            body, is_first = _with_bomb(body, depth, locals_count), False
        out += bytes([number]) + leb(len(body)) + body
    return bytes(out)


def _with_bomb(module: bytes, depth: int, locals_count: int) -> bytes:
    out = bytearray(module[:MAGIC_BYTES])
    type_index = 0
    for number, body in _sections(module):
        if number == TYPES:
            type_index, body = _appended(body, b"\x60\x00\x00")
        elif number == FUNCTIONS:
            _, body = _appended(body, leb(type_index))
        elif number == CODE:
            function = _function(depth, locals_count)
            _, body = _appended(body, leb(len(function)) + function)
        out += bytes([number]) + leb(len(body)) + body
    return bytes(out)


def _function(depth: int, locals_count: int) -> bytes:
    """Loops in loops; each turn moves every local, so that all of them live everywhere."""
    code = bytearray(b"\x01" + leb(locals_count) + b"\x7f")
    code += b"\x03\x40" * depth
    for number in range(locals_count):
        # local[n] = local[n + 1] + local[n]
        code += b"\x20" + leb((number + 1) % locals_count) + b"\x20" + leb(number) + b"\x6a\x21" + leb(number)
    for level in range(depth):
        code += b"\x20" + leb(level % locals_count) + b"\x0d\x00\x0b"
    return bytes(code + b"\x0b")


def _appended(section: bytes, item: bytes) -> tuple[int, bytes]:
    """How many items a vector had, and the vector with one more."""
    count, at = _read_leb(section, 0)
    return count, leb(count + 1) + section[at:] + item


def _sections(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = MAGIC_BYTES
    while at < len(data):
        number = data[at]
        size, at = _read_leb(data, at + 1)
        yield number, data[at : at + size]
        at += size


def leb(number: int) -> bytes:
    """Seven bits a byte, the lowest first, as WebAssembly and HPACK write numbers."""
    out = bytearray()
    while number >= 128:
        out.append(number % 128 + 128)
        number //= 128
    return bytes([*out, number])


def _read_leb(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return number, at

"""The bytes of calls and replies: `contracts/frame.md`, version 1, in Python.

A fixed header, a small typed part (the meta), and 64-byte aligned buffers that are neither copied nor re-encoded: a
numpy array is its element type, its shape and its raw bytes.

    value --encode--> [front, buffer, zeros, buffer, ...]   pieces for sendmsg, nothing copied
    value <--decode-- one buffer                            arrays and buffers are views into it

What an object of Python becomes is decided in `travel`; here are only the values the contract has.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

MAGIC: Final = b"\x8cLFR"
VERSION: Final = 1
MEDIA_TYPE: Final = "application/vnd.lighter.frame"
HEADER_BYTES: Final = 64
ALIGNMENT: Final = 64

CALL, REPLY, FAILURE, EVENT = 1, 2, 3, 4
_BULK: Final = 1

_HEADER: Final = struct.Struct("<4sBBHQQIIII20sI")
_HEADER_HEAD: Final = struct.Struct("<4sBBHQQIIII20s")
_ENTRY: Final = struct.Struct("<QB7s")
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_I64: Final = struct.Struct("<q")
_F64: Final = struct.Struct("<d")
_ARRAY: Final = struct.Struct("<I4BI")
_NO_ENTRY: Final = bytes(7)
_NO_HEADER: Final = bytes(20)
_ZEROS: Final = bytes(ALIGNMENT)
_TEXT: Final = frozenset((str,))

NULL, FALSE, TRUE, I64, F64, STR, BYTES, LIST, MAP, TAGGED, BUFFER, ARRAY = range(12)

_RANK_MAX: Final = 64
_UNIT_BYTES_MAX: Final = 16
_ITEM_BYTES: Final[dict[str, tuple[int, ...]]] = {
    "b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16), "m": (8,), "M": (8,),
}  # fmt: skip


Piece = bytes | bytearray | memoryview


class FrameError(ValueError):
    """These bytes are no frame, or go beyond a limit. `word` is the error's name in the contract."""

    def __init__(self, word: str, detail: str = "") -> None:
        super().__init__(f"{word}: {detail}" if detail else word)
        self.word = word


@dataclass(frozen=True)
class Limits:
    """What a reader accepts. Checked before anything is allocated."""

    total_bytes: int = 256 << 20
    meta_bytes: int = 1 << 20
    buffers: int = 1_024
    depth: int = 32
    values: int = 65_536


#: A list of so many items is shown to `lower` first.
LONG_LIST: Final = 64
#: Longer bytes become a buffer beside the meta.
META_BYTES_EACH: Final = 1_024

#: No limit lets values nest deeper than this.
DEPTH_CEILING: Final = 128


@dataclass(frozen=True)
class Tagged:
    """What a value stands for, where no tag of the contract says it."""

    name: str
    value: Any


@dataclass(frozen=True)
class Buffer:
    """Raw bytes beside the meta."""

    data: memoryview

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Buffer) and self.data == other.data


@dataclass(frozen=True)
class Pieces:
    """Raw bytes beside the meta that lie in several places: written one after the other, read as one `Buffer`."""

    parts: tuple[Piece, ...]

    @property
    def nbytes(self) -> int:
        return total_bytes(self.parts)


@dataclass(frozen=True)
class Written:
    """A value that is written already, as bytes of a meta: what every call of a kind says."""

    meta: bytes
    #: Values within it.
    values: int


@dataclass(frozen=True)
class Array:
    """An array as the contract has it: class, byte order and layout are one letter each, `data` the raw bytes."""

    kind: str
    byte_order: str
    layout: str
    item_bytes: int
    shape: tuple[int, ...]
    unit: str
    data: memoryview

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Array) and (
            (self.kind, self.byte_order, self.layout, self.item_bytes, self.shape, self.unit)
            == (other.kind, other.byte_order, other.layout, other.item_bytes, other.shape, other.unit)
            and self.data == other.data
        )


@dataclass(slots=True)
class Frame:
    """A frame that was read."""

    kind: int
    id: int
    body: Any


class Writer:
    """Writes one value into a meta, and gathers the buffers it refers to."""

    def __init__(self, lower: Callable[[Any], Any] | None = None, depth_max: int = DEPTH_CEILING) -> None:
        self.meta = bytearray()
        self.buffers: list[memoryview | Pieces] = []
        #: Values in it, as its reader counts them.
        self.values = 1
        self._lower = lower
        self._depth_max = min(depth_max, DEPTH_CEILING)

    def value(self, value: Any, depth: int = 1) -> None:
        """Appends `value`; what is no value of the contract is first handed to `lower`, which gives one that is."""
        meta = self.meta
        kind = type(value)
        if kind is str:
            try:
                text = value.encode()
            except UnicodeEncodeError:
                self._odd(value, depth)
                return
            meta += b"\x05" + _U32.pack(len(text))
            meta += text
        elif kind is int and -(1 << 63) <= value < 1 << 63:
            meta.append(I64)
            meta += _I64.pack(value)
        elif kind is float:
            meta.append(F64)
            meta += _F64.pack(value)
        elif value is None:
            meta.append(NULL)
        elif kind is bool:
            meta.append(TRUE if value else FALSE)
        elif kind is bytes and len(value) <= META_BYTES_EACH:
            meta += b"\x06" + _U32.pack(len(value))
            meta += value
        elif kind is list:
            if len(value) >= LONG_LIST and self._lower is not None:
                # Perhaps there is a shorter way to say it.
                lowered = self._lower(value)
                if lowered is not value:
                    self.value(lowered, depth)
                    return
            self._check_depth(depth)
            self.values += len(value)
            meta += b"\x07" + _U32.pack(len(value))
            for item in value:
                self.value(item, depth + 1)
        elif kind is dict and _TEXT.issuperset(map(type, value)):
            self._check_depth(depth)
            begin, buffers, values = len(meta), len(self.buffers), self.values
            self.values += len(value)
            meta += b"\x08" + _U32.pack(len(value))
            for key, item in value.items():
                try:
                    text = key.encode()
                except UnicodeEncodeError:
                    del meta[begin:], self.buffers[buffers:]
                    self.values = values
                    self._odd(value, depth)
                    return
                meta += _U32.pack(len(text))
                meta += text
                self.value(item, depth + 1)
        elif kind is Tagged:
            self._check_depth(depth)
            self.tag(value.name)
            self.value(value.value, depth + 1)
        elif kind is Buffer:
            meta.append(BUFFER)
            meta += _U32.pack(self._buffer(value.data))
        elif kind is Pieces:
            meta.append(BUFFER)
            meta += _U32.pack(self._buffer(value))
        elif kind is Array:
            self._array(value)
        elif kind is Written:
            meta += value.meta
            self.values += value.values
        elif kind is bytes:
            meta.append(BUFFER)
            meta += _U32.pack(self._buffer(memoryview(value)))
        elif self._lower is not None:
            self.value(self._lower(value), depth)
        else:
            raise TypeError(f"a frame has no value for {kind.__name__}")

    def tag(self, name: str) -> None:
        """Appends what comes before a tagged value."""
        text = name.encode()
        self.values += 1
        self.meta += b"\x09" + _U32.pack(len(text))
        self.meta += text

    def items(self, count: int) -> None:
        """Appends what comes before the values of a list."""
        self.values += count
        self.meta += b"\x07" + _U32.pack(count)

    def _odd(self, value: Any, depth: int) -> None:
        """Text that has no UTF-8, which Python makes of file names that have none."""
        lowered = value if self._lower is None else self._lower(value)
        if lowered is value:
            raise FrameError("utf8", "text with half of a surrogate pair")
        self.value(lowered, depth)

    def _check_depth(self, depth: int) -> None:
        if depth >= self._depth_max:
            raise FrameError("too-deep", f"values nest deeper than {self._depth_max}; is there a cycle?")

    def _buffer(self, data: memoryview | Pieces) -> int:
        self.buffers.append(data)
        return len(self.buffers) - 1

    def _array(self, array: Array) -> None:
        self.meta.append(ARRAY)
        self.meta += _ARRAY.pack(
            self._buffer(array.data),
            ord(array.kind),
            ord(array.byte_order),
            ord(array.layout),
            len(array.shape),
            array.item_bytes,
        )
        for axis in array.shape:
            self.meta += _U64.pack(axis)
        unit = array.unit.encode("ascii")
        self.meta.append(len(unit))
        self.meta += unit


def encode(
    body: Any,
    *,
    kind: int = CALL,
    id: int = 0,
    checksum_buffers: bool = False,
    lower: Callable[[Any], Any] | None = None,
) -> list[Piece]:
    """The pieces of a frame, to be sent one after the other; the buffers in them are those given, not copies."""
    writer = Writer(lower)
    writer.value(body)
    return assemble(writer.meta, writer.buffers, kind=kind, id=id, checksum_buffers=checksum_buffers)


def written(value: Any) -> Written:
    """The value, to be written without looking at it again; it holds no buffers, and is at most two deep."""
    writer = Writer()
    writer.value(value)
    assert not writer.buffers
    return Written(bytes(writer.meta), writer.values - 1)


def assemble(
    meta: bytes | bytearray,
    buffers: Sequence[memoryview | Pieces],
    *,
    kind: int,
    id: int = 0,
    checksum_buffers: bool = False,
) -> list[Piece]:
    """The pieces of a frame whose meta is written already."""
    table = b"".join([_ENTRY.pack(data.nbytes, 0, _NO_ENTRY) for data in buffers]) if buffers else b""
    total = HEADER_BYTES + len(table) + len(meta)
    pieces: list[Piece] = []
    bulk = 0
    for data in buffers:
        gap = -total % ALIGNMENT
        if gap:
            pieces.append(_ZEROS[:gap])
        total += gap + data.nbytes
        for part in data.parts if isinstance(data, Pieces) else (data,):
            pieces.append(part)
            if checksum_buffers:
                bulk = zlib.crc32(part, bulk)
    rest = table + meta
    head = _HEADER_HEAD.pack(
        MAGIC, VERSION, kind, _BULK if checksum_buffers else 0, total, id, len(meta), len(buffers), zlib.crc32(rest),
        bulk, _NO_HEADER,
    )  # fmt: skip
    pieces.insert(0, head + _U32.pack(zlib.crc32(head)) + rest)
    return pieces


def said_bytes(pieces: Sequence[Piece]) -> int:
    """Bytes of a whole frame, as the header in its first piece says."""
    return int.from_bytes(pieces[0][8:16], "little")


def total_bytes(pieces: Iterable[Piece]) -> int:
    """Bytes of all pieces together."""
    return sum(piece.nbytes if isinstance(piece, memoryview) else len(piece) for piece in pieces)


def decode(
    data: bytes | bytearray | memoryview,
    limits: Limits = Limits(),
    raise_: Callable[[Any], Any] | None = None,
) -> Frame:
    """Reads a frame. Buffers and arrays are views into `data`.

    `raise_` is given each `Tagged`, `Buffer` and `Array`, innermost first, and its answer takes their place.

    Raises FrameError with the word of the first check that fails, in the order of the contract.
    """
    view = memoryview(data).cast("B") if not isinstance(data, memoryview) else data
    if view.nbytes < HEADER_BYTES:
        raise FrameError("truncated", f"{view.nbytes} bytes are no header")
    (magic, version, kind, flags, total, id_, meta_bytes, count, front_sum, bulk_sum, reserved, header_sum) = (
        _HEADER.unpack_from(view)
    )
    if magic != MAGIC:
        raise FrameError("magic")
    if version != VERSION:
        raise FrameError("version", str(version))
    if zlib.crc32(view[: HEADER_BYTES - 4]) != header_sum:
        raise FrameError("header-checksum")
    if not CALL <= kind <= EVENT:
        raise FrameError("kind", str(kind))
    if flags & ~_BULK:
        raise FrameError("flags", str(flags))
    if reserved != _NO_HEADER or (bulk_sum and not flags & _BULK):
        raise FrameError("reserved")
    if total > limits.total_bytes:
        raise FrameError("total-too-large", f"{total} bytes, the limit is {limits.total_bytes}")
    if meta_bytes > limits.meta_bytes:
        raise FrameError("meta-too-large", f"{meta_bytes} bytes, the limit is {limits.meta_bytes}")
    if count > limits.buffers:
        raise FrameError("too-many-buffers", f"{count}, the limit is {limits.buffers}")
    front = HEADER_BYTES + count * _ENTRY.size + meta_bytes
    if front > total:
        raise FrameError("length")
    if view.nbytes != total:
        raise FrameError("truncated" if view.nbytes < total else "trailing", f"{view.nbytes} bytes of {total}")
    rest = bytes(view[HEADER_BYTES:front])
    if zlib.crc32(rest) != front_sum:
        raise FrameError("front-checksum")
    if count:
        buffers = _buffers(view, count, front, total)
    elif front == total:
        buffers = []
    else:
        raise FrameError("length")
    if flags & _BULK:
        found = 0
        for buffer in buffers:
            found = zlib.crc32(buffer, found)
        if found != bulk_sum:
            raise FrameError("bulk-checksum")
    reader = _Reader(rest[count * _ENTRY.size :], buffers, limits, raise_)
    return Frame(kind, id_, reader.whole())


def _buffers(view: memoryview, count: int, front: int, total: int) -> list[memoryview]:
    buffers, gaps, position = [], [], front
    for index in range(count):
        length, codec, reserved = _ENTRY.unpack_from(view, HEADER_BYTES + index * _ENTRY.size)
        if codec:
            raise FrameError("codec", str(codec))
        if reserved != _NO_ENTRY:
            raise FrameError("reserved")
        start = position + -position % ALIGNMENT
        if start + length > total:
            raise FrameError("length")
        gaps.append(view[position:start])
        buffers.append(view[start : start + length])
        position = start + length
    if position != total:
        raise FrameError("length")
    if any(any(gap) for gap in gaps):
        raise FrameError("padding")
    return buffers


class _Reader:
    """Reads the meta from front to back. No length is trusted: each is compared with what is there."""

    def __init__(self, meta: bytes, buffers: list[memoryview], limits: Limits, raise_: Callable[[Any], Any] | None) -> None:
        self._meta = meta
        self._at = 0
        self._end = len(meta)
        self._buffers = buffers
        self._values_left = limits.values
        self._depth_max = min(limits.depth, DEPTH_CEILING)
        self._raise = raise_ or (lambda value: value)

    def whole(self) -> Any:
        self._announce(1, 1)
        value = self._value(1)
        if self._at != self._end:
            raise FrameError("meta-trailing")
        return value

    def _value(self, depth: int) -> Any:
        # What is read most often is read here, without a call for each of its parts.
        if depth > self._depth_max:
            raise FrameError("too-deep", f"the limit is {self._depth_max}")
        at = self._at
        if at >= self._end:
            raise FrameError("value-truncated")
        tag = self._meta[at]
        self._at = at + 1
        if tag == STR:
            return self._text()
        if tag == I64:
            return _I64.unpack_from(self._meta, self._pass(8))[0]
        if tag == F64:
            return _F64.unpack_from(self._meta, self._pass(8))[0]
        if tag == NULL:
            return None
        if tag == LIST:
            count = self._u32()
            self._announce(count, 1)
            value, depth = self._value, depth + 1
            return [value(depth) for _ in range(count)]
        if tag == MAP:
            return self._map(depth)
        if tag == ARRAY:
            return self._raise(self._array())
        if tag == BUFFER:
            return self._raise(Buffer(self._buffer(self._u32())))
        if tag == TAGGED:
            name = self._text()
            self._announce(1, 1)
            return self._raise(Tagged(name, self._value(depth + 1)))
        if tag == BYTES:
            return self._take(self._u32())
        if tag in (FALSE, TRUE):
            return tag == TRUE
        raise FrameError("tag", str(tag))

    def _map(self, depth: int) -> dict[str, Any]:
        count = self._u32()
        self._announce(count, 5)
        entries: dict[str, Any] = {}
        for _ in range(count):
            key = self._text()
            if key in entries:
                raise FrameError("duplicate-key", repr(key))
            # The place is taken first: a key that comes again inside its own value is another one's.
            entries[key] = self._value(depth + 1)
        return entries

    def _array(self) -> Array:
        index, kind, byte_order, layout, rank, item_bytes = self._array_head()
        shape = tuple(_U64.unpack_from(self._meta, self._pass(8))[0] for _ in range(rank))
        unit_bytes = self._byte()
        if unit_bytes > _UNIT_BYTES_MAX:
            raise FrameError("array-unit")
        unit = self._take(unit_bytes).decode("ascii", "replace")
        if kind not in "biufcmMSUV":
            raise FrameError("array-class")
        if byte_order not in "<>|":
            raise FrameError("array-byte-order")
        if layout not in "CF":
            raise FrameError("array-layout")
        check_type(kind, byte_order, item_bytes, unit)
        product, empty = item_bytes, False
        for axis in shape:
            empty = empty or axis == 0
            product *= axis or 1
            if product >= 1 << 63:
                raise FrameError("array-shape")
        data = self._buffer(index)
        if data.nbytes != (0 if empty else product):
            raise FrameError("array-length", f"{data.nbytes} bytes for shape {shape} of {item_bytes}")
        return Array(kind, byte_order, layout, item_bytes, shape, unit, data)

    def _array_head(self) -> tuple[int, str, str, str, int, int]:
        index = self._u32()
        kind, byte_order, layout, rank = self._take(4)
        if rank > _RANK_MAX:
            raise FrameError("array-rank", str(rank))
        return index, chr(kind), chr(byte_order), chr(layout), rank, self._u32()

    def _announce(self, count: int, bytes_min: int) -> None:
        self._values_left -= count
        if self._values_left < 0:
            raise FrameError("too-many-values")
        if count > (self._end - self._at) // bytes_min:
            raise FrameError("value-truncated")

    def _buffer(self, index: int) -> memoryview:
        if index >= len(self._buffers):
            raise FrameError("buffer-index", str(index))
        return self._buffers[index]

    def _text(self) -> str:
        begin = self._at + 4
        if begin > self._end:
            raise FrameError("value-truncated")
        end = begin + _U32.unpack_from(self._meta, begin - 4)[0]
        if end > self._end:
            raise FrameError("value-truncated")
        self._at = end
        try:
            return self._meta[begin:end].decode()
        except UnicodeDecodeError:
            raise FrameError("utf8") from None

    def _byte(self) -> int:
        return self._meta[self._pass(1)]

    def _u32(self) -> int:
        end = self._at + 4
        if end > self._end:
            raise FrameError("value-truncated")
        self._at = end
        value: int = _U32.unpack_from(self._meta, end - 4)[0]
        return value

    def _take(self, count: int) -> bytes:
        at = self._pass(count)
        return self._meta[at : at + count]

    def _pass(self, count: int) -> int:
        """Goes on by so many bytes that are there; says where they begin."""
        at = self._at
        end = at + count
        if end > self._end:
            raise FrameError("value-truncated")
        self._at = end
        return at


def check_type(kind: str, byte_order: str, item_bytes: int, unit: str) -> None:
    """Checks that item bytes, byte order and unit fit the class of an array."""
    sizes = _ITEM_BYTES.get(kind)
    good = item_bytes in sizes if sizes else item_bytes > 0 and (kind != "U" or item_bytes % 4 == 0)
    if not good:
        raise FrameError("array-item-bytes", f"{item_bytes} for class {kind}")
    one_byte = kind in "bSV" or (kind in "iu" and item_bytes == 1)
    if (byte_order == "|") != one_byte:
        raise FrameError("array-byte-order", f"{byte_order} for class {kind}")
    plain = unit.isascii() and unit.isalnum()
    if (kind in "mM" and not plain) or (kind not in "mM" and unit):
        raise FrameError("array-unit", repr(unit))

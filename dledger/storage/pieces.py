"""A block of frames in pieces, each with a sum of its own: one of its records is found by the pieces it lies in.

::

    block   | header | offsets …          | records …                       | next frame, if it is small …
    pieces  |--- 4 KiB ---|--- 4 KiB ---|--- 4 KiB ---| …        a sum for each
                        1. from, to     2. the value             what is read for one record, where the block is large

A frame's own checksum covers all of its body. The sums are made of bytes that were checked by that one, and a piece is
checked by its sum before it is believed. Of a block that is one frame its place may be known too, and, where all its
records are of one size, that: then where a record lies need not be read.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct, pack
from typing import NamedTuple

from dledger.batch import Buffer, crc32c
from dledger.storage.frame import HEADER_BYTES, Frame, Place, unpack_place
from dledger.types import Entry

PIECE_BYTES = 4096
MAX_EVEN_RECORDS = 8_192
"""Whether the records of larger frames are all of one size is not looked at."""
_RANGE = Struct("<ii")

ReadAt = Callable[[int, int], Buffer | None]
"""(size_bytes, offset) → the bytes, None where that would wait."""


class Block(NamedTuple):
    """Frames one behind the other, as they are stored."""

    size_bytes: int
    piece_bytes: int
    sums: Sequence[int]
    place: Place | None
    """Of the only frame."""
    record_bytes: int
    """The size of all its records; 0 where they differ, or nobody looked."""

    def entry(self, offset: int, index: int, read: ReadAt) -> Entry | None:
        """Record ``index`` out of this block, which lies at ``offset``; None where it is not in it, where reading would
        wait, and where what is read does not match."""
        pieces = _Pieces(self, offset, read)
        if self.place is not None:
            return _entry(pieces, 0, self.place, index, self.record_bytes)
        at = 0
        while at + HEADER_BYTES <= self.size_bytes:
            head = pieces.get(at, at + HEADER_BYTES)
            if head is None:
                return None
            place = unpack_place(head)
            if index < place.base_index + place.count:
                return _entry(pieces, at, place, index)
            at += (place.frame_len + 7) & ~7
        return None


def sums_of(view: memoryview, piece_bytes: int) -> array[int]:
    """A sum for each piece of ``view``."""
    return array("I", [crc32c(view[at : at + piece_bytes]) for at in range(0, len(view), piece_bytes)])


def sums_of_frame(frame: Frame) -> array[int]:
    """A sum for each 4 KiB of the frame as it is stored, without putting it together."""
    body, padding = memoryview(frame.body), -frame.header.frame_len & 7
    first = PIECE_BYTES - HEADER_BYTES
    sums = [crc32c(body[:first], crc32c(memoryview(frame.buffers[0])[:HEADER_BYTES]))]
    sums += [crc32c(body[at : at + PIECE_BYTES]) for at in range(first, len(body), PIECE_BYTES)]
    if padding:
        sums[-1] = crc32c(bytes(padding), sums[-1])
    return array("I", sums)


def even_record_bytes(frame: Frame) -> int:
    """The size of all the frame's records; 0 where they differ, or are too many to look at."""
    count = frame.header.count
    if not 0 < count <= MAX_EVEN_RECORDS:
        return 0
    size = _RANGE.unpack_from(frame.body)[1]
    offsets = _even_offsets(count, size)
    return size if bytes(frame.body[: len(offsets)]) == offsets else 0


@lru_cache(maxsize=32)
def _even_offsets(count: int, size_bytes: int) -> bytes:
    return pack(f"<{count + 1}i", *range(0, (count + 1) * size_bytes, size_bytes)) if size_bytes else b""


class _Pieces:
    """What was read of one block for one record. A range that is asked for is read and checked first."""

    __slots__ = ("_begin", "_block", "_data", "_end", "_offset", "_read")

    def __init__(self, block: Block, offset: int, read: ReadAt) -> None:
        self._block = block
        self._offset = offset
        self._read = read
        self._begin = self._end = 0
        self._data = memoryview(b"")

    def get(self, begin: int, end: int) -> memoryview | None:
        """The block's bytes from ``begin`` to ``end``; None where they wait for the device, or do not match."""
        if (begin < self._begin or end > self._end) and not self._load(begin, end):
            return None
        return self._data[begin - self._begin : end - self._begin]

    def _load(self, begin: int, end: int) -> bool:
        block = self._block
        size = block.piece_bytes
        first, last = begin // size, (end - 1) // size
        begin, end = first * size, min((last + 1) * size, block.size_bytes)
        if begin < 0 or last >= len(block.sums):
            return False
        read = self._read(end - begin, self._offset + begin)
        if read is None:
            return False
        data = memoryview(read)
        for number in range(last - first + 1):
            if crc32c(data[number * size : (number + 1) * size]) != block.sums[first + number]:
                return False
        self._begin, self._end, self._data = begin, end, data
        return True


def _entry(pieces: _Pieces, at: int, place: Place, index: int, record_bytes: int = 0) -> Entry | None:
    """Out of the frame at ``at``."""
    ordinal, count = index - place.base_index, place.count
    if not 0 <= ordinal < count:
        return None
    body = at + HEADER_BYTES
    if record_bytes:
        start = record_bytes * ordinal
        end = start + record_bytes
    else:
        bounds = pieces.get(body + 4 * ordinal, body + 4 * ordinal + _RANGE.size)
        if bounds is None:
            return None
        start, end = _RANGE.unpack(bounds)
    data = body + 4 * (count + 1)
    value = pieces.get(data + start, data + end) if start < end else b""
    return None if value is None else Entry(index, place.term, place.timestamp_ms, bytes(value))

"""Records by index, without the rest of their frames: out of blocks that were checked whole before.

A frame's checksum covers all of its body, so one record of a large batch costs the reading of all. Once a block (what
lies between two entries of the sparse index) has been read and checked, the sums of its pieces are kept: a record is
then found by a few pieces, each checked before it is believed. Of a block that is one frame its place is kept too, and,
where all its records are of one size, that: then where a record lies need not be read.

::

    block   | header | offsets …          | records …                       | next frame, if it is small …
    pieces  |--- 4 KiB ---|--- 4 KiB ---|--- 4 KiB ---| …        a sum for each
                        1. from, to     2. the value             what is read for one record, where the block is large
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct, pack
from typing import NamedTuple

from dledger.batch import Buffer, crc32c
from dledger.storage.frame import HEADER_BYTES, Frame, Place, unpack_place
from dledger.storage.segment import Segment
from dledger.types import Entry

PIECE_BYTES = 4096
"""What is read and checked at a time, of a block that is larger than ``WHOLE_BYTES``."""
WHOLE_BYTES = 12 << 10
"""Blocks up to so many bytes are read whole."""
MAX_KEPT_BYTES = 16 << 20
"""For all sums: those of gigabytes of large batches, or of some hundred megabytes of small ones."""
MAX_EVEN_RECORDS = 8_192
"""Whether the records of larger frames are all of one size is not looked at."""
_BLOCK_OVERHEAD_BYTES = 600
_RANGE = Struct("<ii")

ReadAt = Callable[[int, int], Buffer | None]
"""(size_bytes, offset) → the bytes, None where that would wait."""


class _Block(NamedTuple):
    size_bytes: int
    piece_bytes: int
    sums: Sequence[int]
    place: Place | None
    """Of the only frame."""
    record_bytes: int
    """The size of all its records; 0 where they differ, or nobody looked."""


class _Pieces:
    """What was read of one block for one record. A range that is asked for is read and checked first."""

    __slots__ = ("_begin", "_block", "_data", "_end", "_offset", "_read")

    def __init__(self, block: _Block, offset: int, read: ReadAt) -> None:
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


class CheckedBlocks:
    """The sums of blocks of one log. Frames that are replaced must be forgotten before they are asked for again."""

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self.generation = 0
        """Rises when everything is forgotten: what was read before is not to be noted any more."""
        self._max_bytes = max_bytes
        self._kept_bytes = 0
        self._blocks: dict[tuple[Segment, int], _Block] = {}  # the oldest first

    def clear(self) -> None:
        """Forgets everything."""
        self.generation += 1
        self._blocks.clear()
        self._kept_bytes = 0

    def note(self, segment: Segment, offset: int, frames: Sequence[Frame]) -> None:
        """``frames``, which lie one behind the other from ``offset`` on, were read from the file, and all match."""
        key = (segment, offset)
        if key in self._blocks:
            return
        is_one = len(frames) == 1
        stored = frames[0].buffers[0] if is_one else b"".join(frame.buffers[0] for frame in frames)
        view = memoryview(stored)
        size = len(view) if len(view) <= WHOLE_BYTES else PIECE_BYTES
        sums = array("I", [crc32c(view[at : at + size]) for at in range(0, len(view), size)])
        place, record_bytes = (unpack_place(view), _record_bytes(frames[0])) if is_one else (None, 0)
        self._blocks[key] = block = _Block(len(view), size, sums, place, record_bytes)
        self._kept_bytes += _cost_bytes(block)
        while self._kept_bytes > self._max_bytes:
            oldest = next(iter(self._blocks))
            self._kept_bytes -= _cost_bytes(self._blocks.pop(oldest))

    def entry(self, segment: Segment, offset: int, index: int, read: ReadAt) -> Entry | None:
        """Record ``index``, which lies in the block at ``offset``, or nowhere; None where that block was not checked,
        where reading would wait, and where what is read is not what was checked."""
        block = self._blocks.get((segment, offset))
        if block is None:
            return None
        pieces = _Pieces(block, offset, read)
        if block.place is not None:
            return _entry(pieces, 0, block.place, index, block.record_bytes)
        at = 0
        while at + HEADER_BYTES <= block.size_bytes:
            head = pieces.get(at, at + HEADER_BYTES)
            if head is None:
                return None
            place = unpack_place(head)
            if index < place.base_index + place.count:
                return _entry(pieces, at, place, index)
            at += (place.frame_len + 7) & ~7
        return None


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


def _record_bytes(frame: Frame) -> int:
    """The size of all its records; 0 where they differ, or are too many to look at."""
    count = frame.header.count
    if not 0 < count <= MAX_EVEN_RECORDS:
        return 0
    size = _RANGE.unpack_from(frame.body)[1]
    offsets = _even_offsets(count, size)
    return size if bytes(frame.body[: len(offsets)]) == offsets else 0


@lru_cache(maxsize=32)
def _even_offsets(count: int, size_bytes: int) -> bytes:
    return pack(f"<{count + 1}i", *range(0, (count + 1) * size_bytes, size_bytes)) if size_bytes else b""


def _cost_bytes(block: _Block) -> int:
    return _BLOCK_OVERHEAD_BYTES + sys.getsizeof(block.sums)

"""Records by index, without the rest of their frames: out of blocks that were checked whole before.

A frame's checksum covers all of its body, so one record of a large batch costs the reading of all. Once a block (what
lies between two entries of the sparse index) has been read and checked, the sums of its pieces are kept: a record is
then found by a few pieces, each checked before it is believed.

::

    block   | header | offsets …          | records …                       | next frame, if it is small …
    pieces  |--- 4 KiB ---|--- 4 KiB ---|--- 4 KiB ---| …        a sum for each
              1. where    2. from, to     3. the value           what is read for one record, where the block is large
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from struct import Struct
from typing import NamedTuple

from dledger.batch import Buffer, crc32c
from dledger.storage.frame import HEADER_BYTES, Frame, unpack_place
from dledger.storage.segment import Segment
from dledger.types import Entry

PIECE_BYTES = 4096
"""What is read and checked at a time, of a block that is larger than ``WHOLE_BYTES``."""
WHOLE_BYTES = 12 << 10
"""Blocks up to so many bytes are read whole."""
MAX_KEPT_BYTES = 16 << 20
"""For all sums: those of gigabytes of large batches, or of some hundred megabytes of small ones."""
_BLOCK_OVERHEAD_BYTES = 400
_RANGE = Struct("<ii")

ReadAt = Callable[[int, int], Buffer | None]
"""(size_bytes, offset) → the bytes, None where that would wait."""


class _Block(NamedTuple):
    size_bytes: int
    piece_bytes: int
    sums: Sequence[int]


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
        stored = frames[0].buffers[0] if len(frames) == 1 else b"".join(frame.buffers[0] for frame in frames)
        view = memoryview(stored)
        size = len(view) if len(view) <= WHOLE_BYTES else PIECE_BYTES
        sums = array("I", [crc32c(view[at : at + size]) for at in range(0, len(view), size)])
        self._blocks[key] = block = _Block(len(view), size, sums)
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
        at = 0
        while at + HEADER_BYTES <= block.size_bytes:
            head = pieces.get(at, at + HEADER_BYTES)
            if head is None:
                return None
            place = unpack_place(head)
            if index < place.base_index + place.count:
                value = _value(pieces, at + HEADER_BYTES, index - place.base_index, place.count)
                return None if value is None else Entry(index, place.term, place.timestamp_ms, value)
            at += (place.frame_len + 7) & ~7
        return None


def _value(pieces: _Pieces, body: int, ordinal: int, count: int) -> bytes | None:
    if ordinal < 0:
        return None
    at = body + 4 * ordinal
    bounds = pieces.get(at, at + _RANGE.size)
    if bounds is None:
        return None
    start, end = _RANGE.unpack(bounds)
    if start == end:
        return b""
    data = body + 4 * (count + 1)
    value = pieces.get(data + start, data + end)
    return None if value is None else bytes(value)


def _cost_bytes(block: _Block) -> int:
    return _BLOCK_OVERHEAD_BYTES + sys.getsizeof(block.sums)

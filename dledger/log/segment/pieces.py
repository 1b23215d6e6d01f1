"""Records out of stored frames, without reading all of them: a piece is believed when it matches its sum.

::

    body    | offsets …          | records …                                     |
    pieces  |--- 8 KiB ---|--- 8 KiB ---|--- 8 KiB ---| …        sum[n]: CRC-32C of all up to the end of piece n
                1. from, to     2. the value             what is read for one record

A frame's own checksum covers all of its body. The sums are noted when that checksum is verified (``batch.body_sums``).
A piece is good when the sum before it and its bytes make the sum behind it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct, pack
from typing import NamedTuple

from dledger.common.batch import PIECE_BYTES, Buffer, crc32c
from dledger.common.types import Entry
from dledger.log.frame.frame import HEADER_BYTES, Frame, Place, unpack_place

WHOLE_BYTES = 12 << 10
"""What is no larger is one piece."""
MAX_EVEN_RECORDS = 8_192
"""Whether the records of larger frames are all of one size is not looked at."""
_RANGE = Struct("<ii")

ReadAt = Callable[[int, int], Buffer | None]
"""(size_bytes, offset) → the bytes, or None if reading would wait."""


class Sums(NamedTuple):
    """Of ``size_bytes``, a sum at the end of each piece."""

    size_bytes: int
    piece_bytes: int
    sums: Sequence[int]

    @classmethod
    def of(cls, view: memoryview) -> Sums:
        piece_bytes = max(1, len(view)) if len(view) <= WHOLE_BYTES else PIECE_BYTES
        sums, crc = array("I"), 0
        for at in range(0, len(view), piece_bytes):
            crc = crc32c(view[at : at + piece_bytes], crc)
            sums.append(crc)
        return cls(len(view), piece_bytes, sums)


class Body(NamedTuple):
    """The body of one frame."""

    place: Place
    sums: Sums
    record_bytes: int
    """The size of all its records; 0 if they differ, or nobody looked."""

    @classmethod
    def of(cls, frame: Frame) -> Body:
        header = frame.header
        place = Place(header.frame_len, header.term, header.base_index, header.count, header.timestamp_ms)
        body = memoryview(frame.body)
        sums = Sums(len(body), PIECE_BYTES, frame.sums) if frame.sums else Sums.of(body)
        return cls(place, sums, even_record_bytes(frame))

    def entry(self, offset: int, index: int, read: ReadAt) -> Entry | None:
        """As ``Block.entry``; ``offset`` is the frame's."""
        return _entry(_Pieces(self.sums, offset + HEADER_BYTES, read), 0, self.place, index, self.record_bytes)


class Block(NamedTuple):
    """Frames one behind the other, as they are stored."""

    sums: Sums

    @classmethod
    def of(cls, frames: Sequence[Frame]) -> Block:
        return cls(Sums.of(memoryview(b"".join(frame.buffers[0] for frame in frames))))

    def entry(self, offset: int, index: int, read: ReadAt) -> Entry | None:
        """Record ``index`` from the frames at ``offset``. None if it is not in them, reading would wait, or the bytes
        read do not match."""
        pieces, at = _Pieces(self.sums, offset, read), 0
        while at + HEADER_BYTES <= self.sums.size_bytes:
            head = pieces.get(at, at + HEADER_BYTES)
            if head is None:
                return None
            place = unpack_place(head)
            if index < place.base_index + place.count:
                return _entry(pieces, at + HEADER_BYTES, place, index)
            at += (place.frame_len + 7) & ~7
        return None


def even_record_bytes(frame: Frame) -> int:
    """The size of all the frame's records; 0 if they differ, or are too many to look at."""
    count = frame.header.count
    if not 0 < count <= MAX_EVEN_RECORDS:
        return 0
    size = _RANGE.unpack_from(frame.body)[1]
    if size == 0 or count * size != len(frame.body) - 4 * (count + 1):
        return 0
    offsets = _even_offsets(count, size)
    return size if bytes(frame.body[: len(offsets)]) == offsets else 0


@lru_cache(maxsize=32)
def _even_offsets(count: int, size_bytes: int) -> bytes:
    return pack(f"<{count + 1}i", *range(0, (count + 1) * size_bytes, size_bytes))


class _Pieces:
    """What was read for one record. A range that is asked for is read and checked first."""

    __slots__ = ("_begin", "_data", "_end", "_offset", "_read", "_sums")

    def __init__(self, sums: Sums, offset: int, read: ReadAt) -> None:
        self._sums = sums
        self._offset = offset
        self._read = read
        self._begin = self._end = 0
        self._data = memoryview(b"")

    def get(self, begin: int, end: int) -> memoryview | None:
        """The bytes from ``begin`` to ``end``; None if they wait for the device, or do not match."""
        if (begin < self._begin or end > self._end) and not self._load(begin, end):
            return None
        return self._data[begin - self._begin : end - self._begin]

    def _load(self, begin: int, end: int) -> bool:
        total_bytes, size, sums = self._sums
        first, last = begin // size, (end - 1) // size
        begin, end = first * size, min((last + 1) * size, total_bytes)
        if begin < 0 or last >= len(sums):
            return False
        read = self._read(end - begin, self._offset + begin)
        if read is None or crc32c(read, sums[first - 1] if first else 0) != sums[last]:
            return False
        self._begin, self._end, self._data = begin, end, memoryview(read)
        return True


def _entry(pieces: _Pieces, body: int, place: Place, index: int, record_bytes: int = 0) -> Entry | None:
    """Record ``index`` of the frame with its body at ``body``."""
    ordinal, count = index - place.base_index, place.count
    if not 0 <= ordinal < count:
        return None
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

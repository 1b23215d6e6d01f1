"""The large frames of one segment, and the sums of their pieces. The sums are kept from the writing of a frame on, and
in the footer of a sealed segment. So one record of a large frame costs one piece to read, at any time and at any place
in it.

In a footer, behind the sparse index; little-endian::

    u64 frames | u64 offset[frames] | place[frames] | u32 sum[…]      batch.body_sums of each frame

    place   u64 term | u64 base_index | u64 timestamp_ms | u32 frame_len | u32 count | u32 record_bytes | u32 0
            record_bytes: the size of all records, 0 if they differ
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from struct import Struct

from dledger.common.batch import PIECE_BYTES
from dledger.log.frame.frame import HEADER_BYTES, Frame, Place
from dledger.log.segment.pieces import Body, Sums, even_record_bytes

_PLACE = Struct("<QQQIIII")


class LargeFrames:
    """Ascending by offset. Invariant: ``_first_sums[n]`` is where the sums of frame ``n`` begin."""

    __slots__ = ("_first_sums", "_offsets", "_places", "_sums")

    def __init__(self) -> None:
        self._offsets = array("Q")
        self._places = bytearray()
        self._first_sums = array("Q")
        self._sums = array("I")

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, about."""
        return len(self) * (16 + _PLACE.size) + len(self._sums) * self._sums.itemsize

    def note(self, frame: Frame, offset: int) -> None:
        """``frame``, which was checked and has sums, lies at ``offset``, behind those noted before."""
        header = frame.header
        assert frame.sums is not None, "only large frames have them"
        self._offsets.append(offset)
        self._places += _PLACE.pack(
            header.term,
            header.base_index,
            header.timestamp_ms,
            header.frame_len,
            header.count,
            even_record_bytes(frame),
            0,
        )
        self._first_sums.append(len(self._sums))
        self._sums.extend(frame.sums)

    def at(self, offset: int) -> Body | None:
        """The frame that begins at ``offset``, if it is a large one."""
        number = bisect_left(self._offsets, offset)
        if number == len(self._offsets) or self._offsets[number] != offset:
            return None
        term, base_index, timestamp_ms, frame_len, count, record_bytes, _ = _PLACE.unpack_from(
            self._places, number * _PLACE.size
        )
        first, size_bytes = self._first_sums[number], frame_len - HEADER_BYTES
        sums = Sums(size_bytes, PIECE_BYTES, self._sums[first : first + _pieces(frame_len)])
        return Body(Place(frame_len, term, base_index, count, timestamp_ms), sums, record_bytes)

    def encode(self) -> bytes:
        count = len(self).to_bytes(8, "little")
        return b"".join(
            (count, little_endian(self._offsets).tobytes(), self._places, little_endian(self._sums).tobytes())
        )

    @classmethod
    def decode(cls, stored: bytes) -> LargeFrames | None:
        """None when the columns do not fit each other. Of a footer that has none of it, there are no large frames."""
        found = cls()
        if not stored:
            return found
        places = 8 + 8 * int.from_bytes(stored[:8], "little")
        sums = places + (places - 8) // 8 * _PLACE.size
        if len(stored) < sums or (len(stored) - sums) % 4:
            return None
        found._offsets.frombytes(stored[8:places])
        found._places += stored[places:sums]
        found._sums.frombytes(stored[sums:])
        found._offsets, found._sums = little_endian(found._offsets), little_endian(found._sums)
        first = 0
        for _, _, _, frame_len, *_ in _PLACE.iter_unpack(found._places):
            found._first_sums.append(first)
            first += _pieces(frame_len)
        return found if first == len(found._sums) else None


def _pieces(frame_len: int) -> int:
    return -(-(frame_len - HEADER_BYTES) // PIECE_BYTES)


def little_endian(column: array[int]) -> array[int]:
    """In the other order of bytes, where this machine has the other one."""
    if sys.byteorder == "little":
        return column
    swapped = array(column.typecode, column)
    swapped.byteswap()
    return swapped

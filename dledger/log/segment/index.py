"""The sparse index of one segment: where to begin to look for a position or a record.

In memory four arrays; in a sealed segment the payload of its footer, columns little-endian, one after the other::

    u64 entries | u64 position[entries] | u64 index[entries] | u64 offset[entries] | u64 timestamp_ms[entries]
    | the large frames (large_frames.py), if there are any

It follows from the frames, so a footer that does not match its checksum is built again from them.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right

from dledger.log.frame.frame import Frame, FrameHeader
from dledger.log.segment.large_frames import LargeFrames, little_endian
from dledger.log.segment.pieces import Body

INDEX_INTERVAL_BYTES = 8 * 1024
"""One entry for about so many bytes of frames."""


class SparseIndex:
    """Entries in the order of the file. Invariant: positions and offsets ascend, indexes and timestamps never fall."""

    __slots__ = ("_indexes", "_large", "_next_offset", "_offsets", "_positions", "_timestamps", "last_timestamp_ms")

    def __init__(self) -> None:
        self._positions = array("Q")
        self._indexes = array("Q")
        self._offsets = array("Q")
        self._timestamps = array("Q")
        self._large = LargeFrames()
        self._next_offset = 0
        self.last_timestamp_ms = 0
        """Of the last frame added, noted or not; not kept in a footer."""

    def __len__(self) -> int:
        return len(self._positions)

    @property
    def size_bytes(self) -> int:
        """What it takes in memory, about."""
        return 4 * 8 * len(self) + self._large.size_bytes

    def add(self, frame: Frame, offset: int) -> None:
        """The next frame, which was checked, begins at ``offset``; noted when it is large, or the last one noted is far
        enough."""
        is_large = frame.sums is not None
        self.add_header(frame.header, offset, always=is_large)
        if is_large:
            self._large.note(frame, offset)

    def add_header(self, header: FrameHeader, offset: int, *, always: bool = False) -> None:
        """As ``add``, for a frame without its body at hand."""
        self.last_timestamp_ms = header.timestamp_ms
        if offset < self._next_offset and not always:
            return
        self._next_offset = offset + INDEX_INTERVAL_BYTES
        self._positions.append(header.position)
        self._indexes.append(header.base_index)
        self._offsets.append(offset)
        self._timestamps.append(header.timestamp_ms)

    def begin(self, position: int, index: int, offset: int) -> None:
        """If nothing is noted yet, notes the first frame, which is damaged, at ``offset``."""
        if not self._positions:
            for column, value in zip(self._columns(), (position, index, offset, 0), strict=True):
                column.append(value)

    def offset_before_position(self, position: int) -> tuple[int, int]:
        """(position, offset) of the last noted frame at or before ``position``."""
        at = bisect_right(self._positions, position) - 1
        assert at >= 0, f"position {position} lies before the segment"
        return self._positions[at], self._offsets[at]

    def offset_before_index(self, index: int) -> tuple[int, int]:
        """(position, offset) of the last noted frame that begins at or before record ``index``."""
        at = bisect_right(self._indexes, index) - 1
        assert at >= 0, f"record {index} lies before the segment"
        return self._positions[at], self._offsets[at]

    def block_of_index(self, index: int) -> tuple[int, int, int | None]:
        """As ``offset_before_index``, and the offset of the next noted frame; None if none is noted behind it."""
        at = bisect_right(self._indexes, index) - 1
        assert at >= 0, f"record {index} lies before the segment"
        end_offset = self._offsets[at + 1] if at + 1 < len(self._offsets) else None
        return self._positions[at], self._offsets[at], end_offset

    def large_at(self, offset: int) -> Body | None:
        """The frame at ``offset``, if it is a large one."""
        return self._large.at(offset)

    def encode(self) -> bytes:
        columns = (little_endian(each).tobytes() for each in self._columns())
        return b"".join((len(self).to_bytes(8, "little"), *columns, self._large.encode() if self._large else b""))

    @classmethod
    def decode(cls, payload: bytes) -> SparseIndex | None:
        """None when the columns do not fit their count."""
        entries = int.from_bytes(payload[:8], "little")
        end = 8 + 4 * 8 * entries
        large = LargeFrames.decode(payload[end:]) if len(payload) >= end else None
        if large is None:
            return None
        index = cls()
        index._large = large
        for at, column in enumerate(index._columns()):
            column.frombytes(payload[8 + at * 8 * entries : 8 + (at + 1) * 8 * entries])
            if sys.byteorder == "big":
                column.byteswap()
        index._next_offset = index._offsets[-1] + INDEX_INTERVAL_BYTES if entries else 0
        return index

    def _columns(self) -> tuple[array[int], ...]:
        return self._positions, self._indexes, self._offsets, self._timestamps

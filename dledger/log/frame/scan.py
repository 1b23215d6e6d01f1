"""Walking over the frames of a segment with every check there is: checksums, links, positions, indexes, terms."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dledger.common.errors import DLedgerError, NewerFormat
from dledger.common.types import LogPoint
from dledger.log.frame.frame import HEADER_BYTES, Frame, check_link, parse_body, parse_header

SCAN_CHUNK_BYTES = 1 << 20

ReadAt = Callable[[int, int], bytes]
"""(size, offset) → bytes, fewer at the end of the file only."""


class FrameScanner:
    """Yields the good frames between two offsets, and stops before the first bad one.

    Afterwards the first frame not yielded would begin at ``offset``. ``reason`` says why it was not yielded. It is
    empty at the end offset, and if only zeros stand in place of a header.

    A frame of a newer program counts as neither good nor bad: iterating raises ``NewerFormat``, which names ``path``.
    """

    def __init__(
        self, read: ReadAt, offset: int, end_offset: int, previous: LogPoint, next_index: int, *, path: str
    ) -> None:
        self._read = read
        self._path = path
        self.end_offset = end_offset
        self._chunk = memoryview(b"")
        self._chunk_offset = offset
        self.offset = offset
        self.previous = previous
        """The last good frame."""
        self.next_index = next_index
        self.reason = ""

    def __iter__(self) -> Iterator[tuple[int, Frame]]:
        while self.offset < self.end_offset:
            try:
                frame = self._next()
            except NewerFormat as newer:
                raise newer.in_file(self._path) from newer
            except DLedgerError as bad:
                if any(self._chunk_at(HEADER_BYTES)[:HEADER_BYTES]):
                    self.reason = str(bad)
                return
            header = frame.header
            offset = self.offset
            self.offset = offset + header.stored_bytes
            self.previous = header.point
            self.next_index = header.base_index + header.count
            yield offset, frame

    def _next(self) -> Frame:
        data = self._chunk_at(HEADER_BYTES)
        header = parse_header(data)
        stored_bytes = header.stored_bytes
        if len(data) < stored_bytes:
            data = self._chunk_at(stored_bytes)
        raw = data[:stored_bytes]
        check_link(self.previous, self.next_index, header, raw)
        return parse_body(header, raw)

    def _chunk_at(self, size_bytes: int) -> memoryview:
        """What is there from ``offset`` on: ``size_bytes`` or more, unless the end comes first."""
        at = self.offset - self._chunk_offset
        if len(self._chunk) - at < size_bytes:
            size_bytes = min(max(size_bytes, SCAN_CHUNK_BYTES), self.end_offset - self.offset)
            self._chunk = memoryview(self._read(size_bytes, self.offset))
            self._chunk_offset = self.offset
            at = 0
        return self._chunk[at:]

"""Rows of a column as batches of the log, at C speed and always cut the same way.

A retry must append the same batches again to be recognised. So a batch's end depends on the rows before it alone, not
on how Spark handed them over. It is full when the next record would make its body larger than ``CHUNK_BYTES``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from dledger.common.errors import Code, error

CHUNK_BYTES = 512 << 10
"""Part of what makes a retry the same: no option."""


class Chunk(NamedTuple):
    """A batch's body (dledger.common.batch draws it)."""

    body: bytes
    count: int  # type: ignore[assignment]  # a field, not tuple.count


class Chunker:
    """Rows in, full chunks out. ``rest`` is what they leave."""

    def __init__(self) -> None:
        self._pending: pa.Array = pa.array([], pa.binary())
        self.rows = 0
        self.size_bytes = 0

    def feed(self, batch: pa.RecordBatch, column: str) -> Iterator[Chunk]:
        """The chunks that are full. Raises UNEXPECTED_ARGUMENT for a null."""
        values = batch.column(column)
        if values.null_count:
            raise error(
                Code.UNEXPECTED_ARGUMENT,
                f"column {column} holds a null, and a record is bytes: filter nulls out, or coalesce them; nothing of "
                "this record batch was appended",
            )
        self.rows += len(values)
        self._pending = pa.concat_arrays([self._pending, values.cast(pa.binary())])
        yield from self._cut()

    def rest(self) -> Chunk | None:
        """The rows behind the last full chunk."""
        return next(self._cut(is_last=True), None)

    def _cut(self, *, is_last: bool = False) -> Iterator[Chunk]:
        values = self._pending
        rows = len(values)
        if not rows:
            return
        _, offset_buffer, data = values.buffers()
        offsets = np.frombuffer(offset_buffer, dtype="<i4")[values.offset : values.offset + rows + 1]
        view = memoryview(data or b"")
        ends = offsets.astype(np.int64) + 4 * np.arange(rows + 1)
        start = 0
        while start < rows:
            end = int(np.searchsorted(ends, ends[start] + CHUNK_BYTES - 4, side="right")) - 1
            if end >= rows and not is_last:
                break
            end = min(max(end, start + 1), rows)
            self.size_bytes += int(offsets[end] - offsets[start])
            table = (offsets[start : end + 1] - offsets[start]).astype("<i4").tobytes()
            yield Chunk(b"".join((table, view[offsets[start] : offsets[end]])), end - start)
            start = end
        # A copy: a slice would keep every row of this record batch in memory, and what follows is put behind it.
        self._pending = pa.concat_arrays([values.slice(start), pa.array([], pa.binary())])

"""The columns of a log's records, and how frames become Arrow record batches: never record by record.

A frame's body is an Arrow binary array already (dledger.common.batch draws it): its two buffers are handed on as they
are. Small frames in a row are put together, which copies them once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from dledger.common.batch import Buffer
from dledger.common.errors import ConfigError

OFFSET_BYTES = 4
TARGET_BYTES = 1 << 20
TARGET_ROWS = 32_768
"""Frames are put together up to about so much: smaller record batches cost Spark more than the copy."""


class Records(Protocol):
    """Consecutive records with one term and timestamp: a ``client.Batch``, or a frame's."""

    @property
    def base_index(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def term(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def body(self) -> Buffer: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...


class _Column(NamedTuple):
    sql_type: str
    arrow_type: pa.DataType
    make: Callable[[Sequence[Records]], Any] | None
    """None: the group's name."""


def _values(frames: Sequence[Records]) -> pa.Array:
    if len(frames) == 1:
        return values_of(frames[0].body, frames[0].count)
    rows = sum(frame.count for frame in frames)
    offsets, data = np.empty(rows + 1, dtype="<i4"), []
    row = base = 0
    for frame in frames:
        table_bytes = 4 * (frame.count + 1)
        np.add(np.frombuffer(frame.body, "<i4", frame.count + 1), base, out=offsets[row : row + frame.count + 1])
        data.append(memoryview(frame.body)[table_bytes:])
        row += frame.count
        base += len(frame.body) - table_bytes
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(data))])


def values_of(body: Buffer, count: int) -> pa.Array:
    """The records of a checked body, without a copy; of one that lies askew, the offsets alone are copied."""
    buffer, table_bytes = pa.py_buffer(body), 4 * (count + 1)
    offsets, data = buffer.slice(0, table_bytes), buffer.slice(table_bytes)
    if buffer.address % OFFSET_BYTES:
        offsets = pa.py_buffer(offsets.to_pybytes())
    return pa.Array.from_buffers(pa.binary(), count, [None, offsets, data])


def _indexes(frames: Sequence[Records]) -> np.ndarray[Any, Any]:
    return np.arange(frames[0].base_index, frames[-1].base_index + frames[-1].count, dtype=np.int64)


def _sequences(frames: Sequence[Records]) -> np.ndarray[Any, Any]:
    starts = [frame.base_sequence - frame.base_index for frame in frames]
    sequences = _indexes(frames)
    sequences += _repeated(starts, frames)
    return sequences


def _repeated(values: Sequence[int], frames: Sequence[Records]) -> np.ndarray[Any, Any]:
    if len(values) == 1:
        return np.full(frames[0].count, values[0], dtype=np.int64)
    return np.repeat(np.array(values, dtype=np.int64), [frame.count for frame in frames])


COLUMNS: dict[str, _Column] = {
    "group": _Column("string", pa.string(), None),
    "index": _Column("bigint", pa.int64(), _indexes),
    "term": _Column("bigint", pa.int64(), lambda f: _repeated([each.term for each in f], f)),
    "timestamp": _Column(
        "timestamp",
        pa.timestamp("us", tz="UTC"),
        lambda f: pa.array(_repeated([1000 * each.timestamp_ms for each in f], f)).view(pa.timestamp("us", "UTC")),
    ),
    "value": _Column("binary", pa.binary(), _values),
    "producer_id": _Column("bigint", pa.int64(), lambda f: _repeated([each.producer_id for each in f], f)),
    "producer_epoch": _Column("bigint", pa.int64(), lambda f: _repeated([each.producer_epoch for each in f], f)),
    "sequence": _Column("bigint", pa.int64(), _sequences),
}
DEFAULT_COLUMNS = ("index", "term", "timestamp", "value")


def parse_columns(text: str) -> tuple[str, ...]:
    """``index,value`` …, in the order of the DataFrame. Raises CONFIG_ERROR."""
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in COLUMNS:
            raise ConfigError(f"columns names {name!r}: there are {', '.join(COLUMNS)}")
    if len(set(names)) != len(names):
        raise ConfigError(f"columns names one twice: {text}")
    return names


def sql_schema(columns: Sequence[str]) -> str:
    """The schema as Spark reads it."""
    return ", ".join(f"`{name}` {COLUMNS[name].sql_type}" for name in columns)


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """What Spark expects for ``sql_schema``, exactly."""
    return pa.schema([pa.field(name, COLUMNS[name].arrow_type, nullable=True) for name in columns])


def record_batches(
    frames: Iterable[Records], columns: Sequence[str], group: str, *, start: int, end: int
) -> Iterator[pa.RecordBatch]:
    """The records ``start`` to ``end`` (exclusive) of frames that follow each other; the first and the last frame may
    reach beyond."""
    for base_index, batch in _whole_frames(frames, arrow_schema(columns), group):
        skipped = max(0, start - base_index)
        yield batch.slice(skipped, end - base_index - skipped)


def _whole_frames(frames: Iterable[Records], schema: pa.Schema, group: str) -> Iterator[tuple[int, pa.RecordBatch]]:
    gathered: list[Records] = []
    rows = size_bytes = 0
    for frame in frames:
        gathered.append(frame)
        rows += frame.count
        size_bytes += len(frame.body)
        if rows >= TARGET_ROWS or size_bytes >= TARGET_BYTES:
            yield gathered[0].base_index, _record_batch(gathered, schema, group)
            gathered, rows, size_bytes = [], 0, 0
    if gathered:
        yield gathered[0].base_index, _record_batch(gathered, schema, group)


def _record_batch(frames: Sequence[Records], schema: pa.Schema, group: str) -> pa.RecordBatch:
    rows = sum(frame.count for frame in frames)
    arrays = [_array(COLUMNS[name], frames, pa.repeat(group, rows)) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(column: _Column, frames: Sequence[Records], groups: pa.Array) -> pa.Array:
    return pa.array(column.make(frames)) if column.make is not None else groups

"""The frames of several nodes' logs compared: index, term and chain of each, gaps, divergence and rot.

Frames are summed up by blocks of positions, in whichever segments they lie. A block has their number, and a sum of
hashes over position, term, index and chain; the order does not matter. If all nodes have the same sums of a block they
have the same frames, for a chain says everything before it. The few blocks with differing sums are looked at frame by
frame (audit.py).

::

    node  block  frames  bad  records  first_position  last_position  hash
    0     0      4096    0    81920    1               4095           …        positions 0 … 4095
    1     0      4095    1    81900    1               4095           …        one could not be read
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from dledger.log.copy import LogCopy, Sight
from dledger.log.segment.segment import Segment

BLOCK_POSITIONS: Final = 4096
BATCH_FRAMES: Final = 8192

FRAME_SCHEMA = pa.schema(
    [
        ("node", pa.int64()),
        ("position", pa.int64()),
        ("term", pa.int64()),
        ("base_index", pa.int64()),
        ("count", pa.int64()),
        ("chain", pa.uint64()),
        ("bad", pa.int64()),
    ]
)
BLOCK_SCHEMA = pa.schema(
    [
        ("node", pa.int64()),
        ("block", pa.int64()),
        ("frames", pa.int64()),
        ("bad", pa.int64()),
        ("records", pa.int64()),
        ("first_position", pa.int64()),
        ("last_position", pa.int64()),
        ("hash", pa.uint64()),
    ]
)
_SUMMED = ("frames", "bad", "records", "hash")
_MIX = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xFF51AFD7ED558CCD)


def frame_batches(copy: LogCopy, segment: Segment, node: int) -> Iterator[pa.RecordBatch]:
    """A row for each frame of one segment, good or not."""
    rows: list[tuple[int, ...]] = []
    for sight in copy.look_at(segment):
        rows.append(_row(node, sight))
        if len(rows) == BATCH_FRAMES:
            yield _batch(rows)
            rows = []
    if rows:
        yield _batch(rows)


def _row(node: int, sight: Sight) -> tuple[int, ...]:
    header = sight.header
    if header is None:
        return node, sight.position, 0, 0, 0, 0, 1
    bad = int(bool(sight.problem))
    return node, header.position, header.term, header.base_index, header.count, header.chain, bad


def _batch(rows: list[tuple[int, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, FRAME_SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=FRAME_SCHEMA)


def blocks_of(batch: pa.RecordBatch) -> pa.Table:
    """The partial result of some frames."""
    position = batch.column("position").to_numpy()
    columns = {
        "node": batch.column("node").to_numpy(),
        "block": position // BLOCK_POSITIONS,
        "frames": np.ones(len(position), dtype=np.int64),
        "bad": batch.column("bad").to_numpy(),
        "records": batch.column("count").to_numpy(),
        "first_position": position,
        "last_position": position,
        "hash": _hashes(batch),
    }
    return merge_blocks([pa.table(columns, schema=BLOCK_SCHEMA)])


def _hashes(batch: pa.RecordBatch) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
    mixed = np.zeros(batch.num_rows, dtype=np.uint64)
    for name, factor in zip(("position", "term", "base_index", "chain"), _MIX, strict=True):
        mixed ^= batch.column(name).to_numpy().astype(np.uint64) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(_MIX[0])
    return mixed


def merge_blocks(partials: Iterable[pa.Table]) -> pa.Table:
    """One partial result of several, in any order and grouping."""
    whole = pa.concat_tables([BLOCK_SCHEMA.empty_table(), *partials]).combine_chunks()
    keys = np.stack([whole.column("node").to_numpy(), whole.column("block").to_numpy()])
    unique, place = np.unique(keys, axis=1, return_inverse=True)
    place = place.reshape(-1)
    columns = {"node": unique[0], "block": unique[1]}
    for name in _SUMMED:
        values = whole.column(name).to_numpy()
        columns[name] = np.zeros(unique.shape[1], dtype=values.dtype)
        np.add.at(columns[name], place, values)
    columns["first_position"] = np.full(unique.shape[1], np.iinfo(np.int64).max)
    np.minimum.at(columns["first_position"], place, whole.column("first_position").to_numpy())
    columns["last_position"] = np.full(unique.shape[1], -1, dtype=np.int64)
    np.maximum.at(columns["last_position"], place, whole.column("last_position").to_numpy())
    return pa.table({name: columns[name] for name in BLOCK_SCHEMA.names}, schema=BLOCK_SCHEMA)

"""The first look at a history, which stays small. It has the places of the rows, for shards of a size, and the facts
that one shard must know of the others' rows. It grows with blocks of values, and with appends of unknown outcome.

::

    role      key              until      least                       most                  rows
    values    a block of them  0          when one was first found    when one was invoked  that stand for some of them
                                          (by a run's last value)     at the latest
    indexes   a block of them  0          when one was first known    –                     that make some of them known
    unknown   first value      behind     when the append of them was invoked, which nobody heard of again
    history   0                0          –                           –                     all of it

An index is **known** from the moment an append of it is acknowledged, or a read that shows it returns.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa

from dledger.kernels.history import (
    APPEND,
    FINAL,
    INFO,
    LOCAL_READ,
    READ,
    Column,
    Mask,
    attempts,
    column,
    joined,
    table_of,
    where,
)
from dledger.kernels.invocations import BEGINNING, Invocations
from dledger.kernels.shards import Shards, block_of, blocks_of, shards_of

VALUES, INDEXES, UNKNOWN, HISTORY = range(4)
NEVER = np.iinfo(np.int64).max
ROWS_A_SHARD = 2_000_000
"""Of the history. Some hundred megabytes as a shard is summed up."""
_KEY = ("role", "key", "until")


class OverviewKernel:
    """Of what an ``Overview`` is made."""

    schema: ClassVar[pa.Schema] = pa.schema([(name, pa.int64()) for name in (*_KEY, "least", "most", "rows")])

    def partial(self, batch: pa.RecordBatch) -> pa.Table:
        first, count = column(batch, "first_value"), column(batch, "count")
        invoked_ns, completed_ns = column(batch, "invoked_ns"), column(batch, "completed_ns")
        appended, acked = attempts(batch), where(batch, kind=APPEND)
        read = where(batch, kind=(READ, LOCAL_READ, FINAL))
        unknown = where(batch, kind=APPEND, outcome=INFO)
        block, of = blocks_of(first[appended], (first + count)[appended])
        found = read & (count > 0)
        known = np.where(acked, column(batch, "first_index") + count, column(batch, "read_end")) - 1
        return self.merge(
            [
                _rows(VALUES, block, most=invoked_ns[appended][of]),
                _rows(VALUES, block_of((first + count - 1)[found]), least=completed_ns[found]),
                _rows(INDEXES, block_of(known[acked | read]), least=completed_ns[acked | read]),
                _rows(
                    UNKNOWN,
                    first[unknown],
                    until=(first + count)[unknown],
                    least=invoked_ns[unknown],
                    most=invoked_ns[unknown],
                ),
                _rows(HISTORY, np.zeros(batch.num_rows, dtype=np.int64)),
            ]
        )

    def merge(self, partials: Iterable[pa.Table]) -> pa.Table:
        summed = joined(self.schema, partials).group_by(_KEY)
        totals = summed.aggregate([("least", "min"), ("most", "max"), ("rows", "sum")])
        told = {"least": "least_min", "most": "most_max", "rows": "rows_sum"}
        return pa.table({name: totals.column(told.get(name, name)) for name in self.schema.names})


def _rows(
    role: int,
    key: Column,
    *,
    until: Column | int = 0,
    least: Column | int = NEVER,
    most: Column | int = BEGINNING,
) -> pa.Table:
    spread = (np.broadcast_to(np.int64(each), key.shape) for each in (role, until, least, most, 1))
    role_, until_, least_, most_, rows = spread
    return table_of(role=role_, key=key, until=until_, least=least_, most=most_, rows=rows)


class Overview:
    """What the merged partial of ``OverviewKernel`` tells. Travels to Spark's workers."""

    def __init__(self, merged: pa.Table, rows_a_shard: int = ROWS_A_SHARD) -> None:
        table = merged.sort_by([(name, "ascending") for name in _KEY])
        self._columns = {name: column(table, name) for name in table.column_names}
        self.rows = int(self._columns["rows"][self._of(HISTORY)].sum())
        """Of the whole history."""
        self.count = max(1, -(-self.rows // rows_a_shard))
        """Of shards, at the most."""

    @cached_property
    def values(self) -> Shards:
        """Of the values that were appended or found."""
        return self._shards(VALUES)

    @cached_property
    def indexes(self) -> Shards:
        """Of the indexes that were known."""
        return self._shards(INDEXES)

    @cached_property
    def unknown(self) -> Invocations:
        """The appends that nobody heard of again."""
        mine = self._of(UNKNOWN)
        return Invocations(*(self._columns[name][mine] for name in ("key", "until", "least")))

    def earliest_known_behind(self, shard: int) -> int:
        """When an index of a later shard than this one was first known; NEVER if there is none."""
        if shard >= len(self.indexes.bounds):
            return NEVER
        mine = self._of(INDEXES) & (self._columns["key"] >= block_of(self.indexes.bounds[shard : shard + 1]))
        return int(self._columns["least"][mine].min(initial=NEVER))

    def may_be_early(self, blocks: Column) -> Mask:
        """Whether something of each block of values was found before something of it was invoked: most are not, and
        need no second look."""
        return np.isin(blocks, self._early_blocks)

    @cached_property
    def _early_blocks(self) -> Column:
        is_early = self._of(VALUES) & (self._columns["least"] < self._columns["most"])
        return np.asarray(self._columns["key"][is_early])

    def _shards(self, role: int) -> Shards:
        mine = self._of(role)
        return shards_of(self._columns["key"][mine], self._columns["rows"][mine], self.count)

    def _of(self, role: int) -> Mask:
        return np.asarray(self._columns["role"] == role)

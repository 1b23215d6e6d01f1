"""Operations and their outcomes: the columns of a history. One row is one append, or a run of one read's records.

::

    process  kind    outcome  invoked_ns  completed_ns  first_value  first_index  count  read_start  read_end
    3        append  ok       120         190           3<<40 | 8    41           2      −1          −1
    3        append  info     200         5200          3<<40 | 10   −1           2      −1          −1
    7        read    ok       130         210           3<<40 | 0    0            8      0           43
    7        read    ok       130         210           5<<40 | 0    8            35     0           43

    beside these: call (which of the process's), term, node (that was asked; empty: the leader), error (a code)

Values are numbers of 64 bits: the process that appended it (above 2^40), and its how manieth it was. A row stands for
``count`` consecutive values at ``count`` consecutive indexes. So a batch is one row, and so is a read's part of it. A
read has a row for each run, or one with count 0 when it found nothing; all of them carry the read's own range.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

PROCESS_SHIFT: Final = 40
"""Where a value's process begins: a process may append 2^40 of them."""

APPEND: Final = "append"
READ: Final = "read"
"""Linearizable: it sees every append acknowledged, and every record read, before it was called."""
LOCAL_READ: Final = "local-read"
"""Of one node's committed prefix, which may be behind."""
FINAL: Final = "final"
"""The read at the end: what the log holds. Several, by different processes, when every node's copy is read."""

KINDS: Final = (APPEND, READ, LOCAL_READ, FINAL)

OK: Final = "ok"
FAIL: Final = "fail"
"""It surely did not happen."""
INFO: Final = "info"
"""Nobody knows whether it happened, or will."""

NOWHERE: Final = -1
"""An index that is not known."""

HISTORY_SCHEMA = pa.schema(
    [
        ("process", pa.int64()),
        ("call", pa.int64()),
        ("kind", pa.string()),
        ("outcome", pa.string()),
        ("invoked_ns", pa.int64()),
        ("completed_ns", pa.int64()),
        ("first_value", pa.int64()),
        ("first_index", pa.int64()),
        ("count", pa.int64()),
        ("term", pa.int64()),
        ("read_start", pa.int64()),
        ("read_end", pa.int64()),
        ("node", pa.string()),
        ("error", pa.string()),
    ]
)

Column = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def column(batch: pa.RecordBatch | pa.Table, name: str) -> Column:
    """A column of whole numbers as an array; without a copy where there is one chunk."""
    return np.asarray(batch.column(name).to_numpy(zero_copy_only=False), dtype=np.int64)


def where(batch: pa.RecordBatch | pa.Table, *, kind: str | tuple[str, ...], outcome: str = OK) -> Mask:
    """The rows of one kind (or one of several) with one outcome."""
    kinds = (kind,) if isinstance(kind, str) else kind
    chosen = pc.and_(
        pc.is_in(batch.column("kind"), value_set=pa.array(kinds, pa.string())),
        pc.equal(batch.column("outcome"), outcome),
    )
    return np.asarray(chosen.to_numpy(zero_copy_only=False), dtype=np.bool_)


def value_text(value: int) -> str:
    """A value as people read it: its process, and which of its values it is."""
    return f"value {value & ((1 << PROCESS_SHIFT) - 1)} of process {value >> PROCESS_SHIFT}"


def attempts(batch: pa.RecordBatch | pa.Table) -> Mask:
    """The appends, with any outcome."""
    return np.asarray(pc.equal(batch.column("kind"), APPEND).to_numpy(zero_copy_only=False), dtype=np.bool_)


def problem_of(batch: pa.RecordBatch) -> str:
    """Why a batch is of no history; empty when it is of one. A row that no kernel looks at must not pass for none."""
    for field, values in zip(batch.schema, batch.columns, strict=True):
        if values.null_count:
            return f"a row has no {field.name}"
    for name, words in (("kind", KINDS), ("outcome", (OK, FAIL, INFO))):
        strange = set(pc.unique(batch.column(name)).to_pylist()) - set(words)
        if strange:
            return f"{min(strange)!r} is no {name}"
    return ""


def table_of(**columns: Column) -> pa.Table:
    """A table of whole numbers."""
    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


def joined(schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.Table:
    """Their rows in one table; also of none at all."""
    return pa.concat_tables([schema.empty_table(), *tables]).combine_chunks()


def picked(table: pa.Table, chosen: Mask | Column) -> pa.Table:
    """The rows for which ``chosen`` holds, or those at the places in it."""
    return table.filter(pa.array(chosen)) if chosen.dtype == np.bool_ else table.take(pa.array(chosen))

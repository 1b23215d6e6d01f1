"""A history as it was recorded, a line of JSON for each event of an append, summed up as ``RateKernel`` does.

::

    {"type":"invoke","process":3,"call":17,"ns":120,"value":3298534883336,"count":2}
    {"type":"ok","process":3,"call":17,"ns":190,"invoked":120,"value":3298534883336,"count":2,"index":41,"term":2}

An append that was invoked and has no other line is of unknown outcome. No line need be beside its other one. An
invocation counts as one of unknown outcome. A completion takes this back and counts with its own outcome.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from dledger.common.errors import ConfigError
from dledger.kernels.history import APPEND, FAIL, INFO, OK, column
from dledger.kernels.rates import RateKernel

INVOKE: Final = "invoke"
_ALWAYS: Final = ("type", "ns", "count")
LINES_SCHEMA = pa.schema(
    [
        ("type", pa.string()),
        ("process", pa.int64()),
        ("call", pa.int64()),
        ("ns", pa.int64()),
        ("invoked", pa.int64()),
        ("value", pa.int64()),
        ("count", pa.int64()),
        ("index", pa.int64()),
        ("term", pa.int64()),
        ("error", pa.string()),
    ]
)
"""Of all that a line may tell; none tells everything."""
_RATES = RateKernel()


class LineKernel:
    """``RateKernel`` of batches with one column, ``value``: lines. Ask ``settled`` of what was merged."""

    schema: ClassVar[pa.Schema] = RateKernel.schema

    def partial(self, batch: pa.RecordBatch) -> pa.Table:
        """Raises CONFIG_ERROR for a line that is no event of an append."""
        events = _parsed(batch.column("value"))
        if not events.num_rows:
            return _RATES.merge([])
        is_invoked = pc.equal(events.column("type"), INVOKE)
        invoked, completed = events.filter(is_invoked), events.filter(pc.invert(is_invoked))
        if completed.column("invoked").null_count:
            raise ConfigError("a line that completes an append does not tell when it was invoked")
        return self.merge(
            [
                _counted(completed, completed.column("type"), "invoked", "ns"),
                _counted(invoked, INFO, "ns", "ns"),
                _taken_back(_counted(completed, INFO, "invoked", "invoked")),
            ]
        )

    def merge(self, partials: Iterable[pa.Table]) -> pa.Table:
        return _RATES.merge(partials)


def settled(merged: pa.Table) -> pa.Table:
    """The partial of ``RateKernel`` that the lines amount to. Raises CONFIG_ERROR if some of them are missing."""
    if (column(merged, "calls") < 0).any():
        raise ConfigError("an append was completed that was never invoked: lines are missing")
    return merged.filter(pa.array(column(merged, "calls") > 0))


def _parsed(lines: pa.Array) -> pa.Table:
    text = b"\n".join(lines.cast(pa.binary()).to_pylist())
    if not text.strip():
        return LINES_SCHEMA.empty_table()
    options = pj.ParseOptions(explicit_schema=LINES_SCHEMA, unexpected_field_behavior="error")
    try:
        events = pj.read_json(pa.BufferReader(text), pj.ReadOptions(block_size=len(text) + 1), options)
    except pa.ArrowInvalid as failure:
        raise ConfigError(f"a line is no event of an append: {failure}") from None
    for name in _ALWAYS:
        if events.column(name).null_count:
            raise ConfigError(f"a line is no event of an append: it has no {name}")
    strange = set(pc.unique(events.column("type")).to_pylist()) - {INVOKE, OK, FAIL, INFO}
    if strange:
        raise ConfigError(f"a line is no event of an append: {min(strange)!r} is no type of one")
    return events


def _counted(events: pa.Table, outcome: pa.ChunkedArray | str, invoked: str, completed: str) -> pa.Table:
    rows = events.num_rows
    columns = {
        "kind": pa.repeat(APPEND, rows),
        "outcome": pa.repeat(outcome, rows) if isinstance(outcome, str) else outcome.combine_chunks(),
        "invoked_ns": events.column(invoked).combine_chunks(),
        "completed_ns": events.column(completed).combine_chunks(),
        "count": events.column("count").combine_chunks(),
    }
    return _RATES.partial(pa.record_batch(columns))


def _taken_back(partial: pa.Table) -> pa.Table:
    for name in ("calls", "records"):
        place = partial.schema.get_field_index(name)
        partial = partial.set_column(place, name, pa.array(np.negative(column(partial, name))))
    return partial

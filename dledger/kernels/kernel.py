"""A kernel gives a partial result of each batch, merged in any order and grouping. A check does the same in shards, so
no process ever holds all of it.

::

    batch ──partial──▶ rows ──cut──▶ rows of shard 0 ──summary──┐
    batch ──partial──▶ rows ──cut──▶ rows of shard 1 ──summary──┼──▶ summaries ──▶ findings
                                     …                          ┘

Between ``cut`` and ``summary`` rows of one shard come together from all batches: in memory, from files, or by Spark's
shuffle.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
import pyarrow as pa

from dledger.kernels.history import NOWHERE, Column, column, table_of, value_text

if TYPE_CHECKING:
    from dledger.kernels.overview import Overview


@dataclass(frozen=True, slots=True)
class Findings:
    """``counts`` are told; each of ``violations`` that is not 0 makes the history invalid. ``examples``: for people."""

    counts: Mapping[str, int] = field(default_factory=dict)
    violations: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[str, ...] = ()

    @property
    def valid(self) -> bool:
        return not any(self.violations.values())


class Kernel(Protocol):
    """A sum over a history. ``merge`` is associative and commutative, and may shrink; a partial is a table of whole
    numbers. ``merge([partial(b) for b in batches])`` tells the same however the history was cut into batches."""

    schema: ClassVar[pa.Schema]
    """Of a partial result."""

    def partial(self, batch: pa.RecordBatch) -> pa.Table:
        """Of a batch with the columns of ``HISTORY_SCHEMA``."""

    def merge(self, partials: Iterable[pa.Table]) -> pa.Table:
        """One partial of several."""


class Check(Protocol):
    """Finds faults. What it finds does not depend on batches, nor on how many shards there are."""

    name: ClassVar[str]
    schema: ClassVar[pa.Schema]
    """Of its rows."""

    def partial(self, batch: pa.RecordBatch, overview: Overview) -> pa.Table:
        """The rows of a batch with the columns of ``HISTORY_SCHEMA``."""

    def cut(self, rows: pa.Table, overview: Overview) -> tuple[pa.Table, Column]:
        """The rows, each split if it lies in several shards; and the shard of each."""

    def summary(self, rows: pa.Table, overview: Overview, shard: int) -> pa.Table:
        """A table of ``SUMMARY`` for all the rows of one shard."""

    def findings(self, summaries: pa.Table) -> Findings:
        """Of the summaries of all shards, in any order."""


SUMMARY = pa.schema([(name, pa.int64()) for name in ("what", "whose", "at", "low", "high", "number")])


def numbers(names: Sequence[str], found: Mapping[str, int], examples: Mapping[str, int | None]) -> pa.Table:
    """A summary of numbers that add up, by their places in ``names``; ``at``: a value as an example, or ``NOWHERE``."""
    what = np.arange(len(names), dtype=np.int64)
    at = [NOWHERE if (example := examples.get(name)) is None else example for name in names]
    nothing = np.zeros(len(names), dtype=np.int64)
    number = np.array([found[name] for name in names], dtype=np.int64)
    return table_of(what=what, whose=nothing, at=np.array(at, dtype=np.int64), low=nothing, high=nothing, number=number)


def added(names: Sequence[str], summaries: pa.Table) -> tuple[dict[str, int], tuple[str, ...]]:
    """What ``numbers`` told of all shards together: the sums, and the least of each one's examples, for people."""
    what, number, at = (column(summaries, name) for name in ("what", "number", "at"))
    sums = {name: int(number[what == place].sum()) for place, name in enumerate(names)}
    examples = {name: at[(what == place) & (at != NOWHERE)] for place, name in enumerate(names)}
    return sums, tuple(f"{name}: {value_text(int(told.min()))}" for name, told in examples.items() if len(told))


MERGE_AT_ROWS = 4_000_000
"""Partials are merged whenever they hold so many rows together, or twice what the last merge left."""


def whole_partial(kernel: Kernel, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    """The partial of all batches, in bounded memory where the kernel's partials shrink."""
    waiting: list[pa.Table] = []
    rows, limit = 0, MERGE_AT_ROWS
    for batch in batches:
        waiting.append(kernel.partial(batch))
        rows += waiting[-1].num_rows
        if rows > limit:
            waiting = [kernel.merge(waiting)]
            rows = waiting[0].num_rows
            limit = max(MERGE_AT_ROWS, 2 * rows)
    return kernel.merge(waiting)

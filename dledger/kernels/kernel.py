"""What a check is: a partial result of each batch, merged in any order and grouping, and findings at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import pyarrow as pa


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
    """One check. ``merge`` is associative and commutative, and may shrink; a partial is a table of whole numbers.

    ``findings(merge([partial(b) for b in batches]))`` does not depend on how the history was cut into batches.
    """

    name: ClassVar[str]
    schema: ClassVar[pa.Schema]
    """Of a partial result."""

    def partial(self, batch: pa.RecordBatch) -> pa.Table:
        """Of a batch with the columns of ``HISTORY_SCHEMA``."""

    def merge(self, partials: Iterable[pa.Table]) -> pa.Table:
        """One partial of several."""

    def findings(self, merged: pa.Table) -> Findings:
        """Of the whole history's partial."""


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


def judge(kernel: Kernel, batches: Iterable[pa.RecordBatch]) -> Findings:
    """The verdict on a history that one process reads."""
    return kernel.findings(whole_partial(kernel, batches))


def joined(schema: pa.Schema, partials: Iterable[pa.Table]) -> pa.Table:
    """Their rows in one table; also of none at all."""
    return pa.concat_tables([schema.empty_table(), *partials]).combine_chunks()

"""Rates, sizes and gaps of a log or an archive, as numbers and as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dledger.kernels.record_stats import SLOTS_PER_S, RecordStats, summary
from dledger.spark.columns import record_batches
from dledger.spark.jobs import pictures
from dledger.spark.origin import opened
from dledger.spark.plan import resolve_range
from dledger.spark.source_options import ReadOptions

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyspark.sql import DataFrame

PARTIAL_SCHEMA = "slot bigint, size_class bigint, records bigint, size_bytes bigint"
STATS = RecordStats()
PICTURE_INCHES = (9, 8)
MOST_STEPS = 6_000
"""More than a picture has dots."""


def sums(records: DataFrame) -> pa.Table:
    """The partial result of all rows, which have a ``timestamp`` and a ``value``."""
    partials = records.select("timestamp", "value").mapInArrow(_partials, PARTIAL_SCHEMA).toArrow()
    return STATS.merge([partials.cast(STATS.schema)])


def _partials(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from STATS.merge(STATS.partial(batch) for batch in batches).to_batches()


def local_sums(options: dict[str, str]) -> pa.Table:
    """The partial result of all records of a log, summed up in this process."""
    read = ReadOptions.parse({**options, "columns": "timestamp,value"})
    with opened(read.place) as origin:
        start, end = resolve_range(read, origin)
        if start >= end:
            return STATS.merge([])
        frames = origin.read(start, end)
        batches = record_batches(frames, read.columns, read.place.group, start=start, end=end)
        return STATS.merge(map(STATS.partial, batches))


def plot(merged: pa.Table, out: Path, title: str) -> dict[str, Any]:
    """OUT.png and OUT.html; returns the numbers that stand beside the picture."""
    return pictures.write(out, title, summary(merged), lambda figure: _draw(figure, merged), inches=PICTURE_INCHES)


def _draw(figure: Figure, merged: pa.Table) -> None:
    rate, volume, sizes = figure.subplots(3, 1)
    slots = merged.column("slot").to_numpy()
    if len(slots):
        at, axis_s, step_s = steps_of(slots)
        rate.step(axis_s, np.bincount(at, weights=merged.column("records").to_numpy()) / step_s, where="post")
        volume.step(
            axis_s, np.bincount(at, weights=merged.column("size_bytes").to_numpy()) / step_s / 1e6, where="post"
        )
        by_class = np.bincount(merged.column("size_class").to_numpy(), weights=merged.column("records").to_numpy())
        sizes.bar([_class_name(each) for each in range(len(by_class))], by_class)
    rate.set(ylabel="records / s", xlabel="seconds", ylim=(0, None))
    volume.set(ylabel="MB / s", xlabel="seconds", ylim=(0, None))
    sizes.set(ylabel="records", xlabel="bytes a record")


def steps_of(slots: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], float]:
    """The step of each slot in the picture, the beginning of each step, and the length of one in seconds. A log of
    years has no more steps than one of minutes."""
    since = slots - slots.min()
    slots_a_step = -(-(int(since.max()) + 1) // MOST_STEPS)
    at = since // slots_a_step
    step_s = slots_a_step / SLOTS_PER_S
    return at, np.arange(int(at.max()) + 1) * step_s, step_s


def _class_name(size_class: int) -> str:
    return "0" if not size_class else f"≤ {(1 << size_class) - 1}"

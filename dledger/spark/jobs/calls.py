"""Latency, rates and availability of a fault test's appends, as numbers and as a picture: what a log does not hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dledger.kernels.call_stats import Course, Numbers, call_summary, course
from dledger.kernels.kernel import Kernel, whole_partial
from dledger.kernels.lines import LineKernel, settled
from dledger.kernels.rates import RateKernel
from dledger.spark.jobs import histories, pictures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pyspark.sql import SparkSession

PICTURE_INCHES = (9, 10)
MOST_STEPS = 1_000
"""More than a picture has dots."""
COLOURS = {"ok": "#3b6fd4", "failed": "#d1343a", "unknown": "#e0a800"}
SHADES = {"p50": "#1f8a4c", "p99": "#e0a800", "max": "#d1343a"}


def sums(spark: SparkSession, history: histories.History) -> pa.Table:
    """The merged partial of ``RateKernel``, summed up by Spark."""
    return _settled(history, histories.partial_of(histories.rows(spark, history), _kernel(history)))


def local_sums(history: histories.History) -> pa.Table:
    """The merged partial of ``RateKernel``, summed up in this process."""
    return _settled(history, whole_partial(_kernel(history), histories.batches(history)))


def _kernel(history: histories.History) -> Kernel:
    return LineKernel() if history.is_lines else RateKernel()


def _settled(history: histories.History, merged: pa.Table) -> pa.Table:
    return settled(merged) if history.is_lines else merged


def plot(merged: pa.Table, out: Path, title: str) -> dict[str, Any]:
    """OUT.png and OUT.html; returns the numbers that stand beside the picture."""
    told = course(merged, MOST_STEPS)
    return pictures.write(out, title, call_summary(merged), lambda figure: _draw(figure, told), inches=PICTURE_INCHES)


def _draw(figure: Figure, told: Course) -> None:
    latency, rate, sizes, available = figure.subplots(4, 1, sharex=True, height_ratios=(3, 3, 2, 1))
    if len(told.begin_s):
        for name, values in told.latency_ms.items():
            # A second between two without acknowledgements is a line of no length: its dot is seen.
            latency.plot(told.begin_s + told.step_s / 2, values, ".-", color=SHADES[name], label=name, markersize=3)
        latency.set_yscale("log")
        for word, values in told.records_per_s.items():
            if word == "ok" or values.any():
                _steps(rate, told, values, baseline=None, color=COLOURS[word], label=word)
        _steps(sizes, told, told.records_per_call, baseline=None)
        _steps(available, told, told.available, fill=True, color=COLOURS["ok"])
        latency.legend(ncols=3)
        rate.legend(ncols=3)
    latency.set(ylabel="latency, ms")
    rate.set(ylabel="records / s", ylim=(0, None))
    sizes.set(ylabel="records\na call", ylim=(0, None))
    available.set(ylabel="available", ylim=(0, 1.05), xlabel="seconds")


def _steps(axes: Axes, told: Course, values: Numbers, **style: Any) -> None:
    axes.stairs(values, np.append(told.begin_s, told.begin_s[-1] + told.step_s), **style)

"""All kernels that find faults, and one verdict of theirs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from dledger.kernels.kernel import Findings, Kernel
from dledger.kernels.places import PlaceKernel
from dledger.kernels.ranges import RangeKernel
from dledger.kernels.sets import SetKernel
from dledger.kernels.time_order import TimeOrderKernel

CHECKS: tuple[Kernel, ...] = (SetKernel(), PlaceKernel(), TimeOrderKernel(), RangeKernel())


def check_history(batches: Iterable[pa.RecordBatch]) -> dict[str, Findings]:
    """Every check's findings on a history that is read once."""
    partials: dict[str, list[pa.Table]] = {kernel.name: [] for kernel in CHECKS}
    for batch in batches:
        for kernel in CHECKS:
            partials[kernel.name].append(kernel.partial(batch))
    return {kernel.name: kernel.findings(kernel.merge(partials[kernel.name])) for kernel in CHECKS}


def verdict(findings: Mapping[str, Findings]) -> dict[str, Any]:
    """As one JSON object. Valid: no violation, something was acknowledged, and there was a read at the end."""
    numbers: dict[str, int] = {}
    for found in findings.values():
        numbers |= {**found.counts, **found.violations}
    proven = bool(numbers["acknowledged"]) and bool(numbers["final_reads"])
    return {"valid": proven and all(found.valid for found in findings.values()), **numbers}

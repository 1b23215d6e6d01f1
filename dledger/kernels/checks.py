"""All checks of a history, and one verdict of theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from dledger.kernels.causes import CauseCheck
from dledger.kernels.history import joined
from dledger.kernels.kernel import SUMMARY, Check, Findings, whole_partial
from dledger.kernels.overview import ROWS_A_SHARD, Overview, OverviewKernel
from dledger.kernels.places import PlaceCheck
from dledger.kernels.ranges import RangeCheck
from dledger.kernels.sets import SetCheck
from dledger.kernels.shards import in_shards
from dledger.kernels.spill import Spill
from dledger.kernels.terms import TermCheck
from dledger.kernels.time_order import TimeOrderCheck

CHECKS: tuple[Check, ...] = (SetCheck(), PlaceCheck(), TimeOrderCheck(), CauseCheck(), TermCheck(), RangeCheck())


class Share(NamedTuple):
    """What one shard of one check has of a batch."""

    check: int
    """Its place in ``CHECKS``."""
    shard: int
    rows: pa.Table


def shares(batch: pa.RecordBatch, overview: Overview) -> Iterator[Share]:
    """The rows of a batch, where they are to be summed up."""
    for number, check in enumerate(CHECKS):
        rows, shard = check.cut(check.partial(batch, overview), overview)
        yield from (Share(number, *each) for each in in_shards(rows, shard))


def check_history(
    read: Callable[[], Iterable[pa.RecordBatch]],
    *,
    rows_a_shard: int = ROWS_A_SHARD,
    tell: Callable[[str, float], None] = lambda _what, _share: None,
) -> dict[str, Findings]:
    """Every check's findings on a history that is read twice. What memory does not hold waits in TMPDIR. ``tell`` hears
    the present step and its share done, 0 to 1, or less than 0 if it is unknown."""
    tell("a first look", -1)
    overview = Overview(whole_partial(OverviewKernel(), read()), rows_a_shard)
    done = 0
    summaries: list[list[pa.Table]] = [[] for _ in CHECKS]
    with Spill() as spill:
        for batch in read():
            for check, shard, rows in shares(batch, overview):
                spill.add(f"{check}-{shard}", rows)
            done += batch.num_rows
            tell("sorting it", done / overview.rows)
        keys = spill.keys
        for place, key in enumerate(keys):
            check, shard = map(int, key.split("-"))
            tell(CHECKS[check].name, place / len(keys))
            rows = joined(CHECKS[check].schema, spill.take(key))
            summaries[check].append(CHECKS[check].summary(rows, overview, shard))
    return found_by(summaries)


def found_by(summaries: Iterable[Iterable[pa.Table]]) -> dict[str, Findings]:
    """What each of ``CHECKS`` makes of the summaries of its shards."""
    told = zip(CHECKS, summaries, strict=True)
    return {check.name: check.findings(joined(SUMMARY, mine)) for check, mine in told}


def verdict(findings: Mapping[str, Findings]) -> dict[str, Any]:
    """As one JSON object. Valid: no violation, something was acknowledged, and there was a read at the end."""
    numbers: dict[str, int] = {}
    for found in findings.values():
        numbers |= {**found.counts, **found.violations}
    proven = bool(numbers["acknowledged"]) and bool(numbers["final_reads"])
    return {"valid": proven and all(found.valid for found in findings.values()), **numbers}

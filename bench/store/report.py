"""What a run side by side with etcd says: medians and ranges of the rounds, and of the ratios within a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from bench.report import NONE, Spread
from bench.store.systems import EtcdStore, OurStore
from bench.store.works import OWN_PUTS_256, PUTS_256, WORKS, StoreWork

OURS, ETCD = OurStore.name, EtcdStore.name
RATE, P50 = "records_per_s", "p50_ms"
ByRound = dict[int, float]
Result = Mapping[str, Any]


def times(work: StoreWork) -> Callable[[Result], Spread]:
    """How many times etcd's rate ours is; where the latency counts, how many times our p50 etcd's is."""
    key = P50 if work.p50 else RATE

    def found(result: Result) -> Spread:
        ours, theirs = by_round(result, OURS, work, key), by_round(result, ETCD, work, key)
        return _ratio(theirs, ours) if work.p50 else _ratio(ours, theirs)

    return found


def sdk_times(result: Result) -> Spread:
    """Our SDK's puts over the most that etcd did in the round with as many in flight, by any client."""
    theirs = [by_round(result, ETCD, work, RATE) for work in (PUTS_256, OWN_PUTS_256)]
    best = {number: max(each[number] for each in theirs if number in each) for number in set().union(*theirs)}
    return _ratio(by_round(result, OURS, OWN_PUTS_256, RATE), best)


def by_round(result: Result, system: str, work: StoreWork, key: str) -> ByRound:
    """The figure of each round that has one."""
    found = [each for each in result["samples"] if (each["system"], each["work"]) == (system, work.name)]
    return {each["round"]: each[key] for each in found if each[key]}


def _ratio(above: ByRound, below: ByRound) -> Spread:
    """Raises LookupError where no round has both."""
    both = sorted(above.keys() & below.keys())
    if not both:
        raise LookupError("no round has both")
    return Spread.of([above[number] / below[number] for number in both])


def rows(result: Result) -> list[dict[str, str]]:
    """A row a work."""
    table = [_row(result, work) for work in WORKS]
    sdk = dict.fromkeys(table[0], NONE)
    return [*table, {**sdk, "": "SDK, 256 in flight, beside etcd's best", "times": _told(sdk_times, result)}]


def _row(result: Result, work: StoreWork) -> dict[str, str]:
    row = {"": work.name}
    for system in (OURS, ETCD):
        row[f"{system}, /s"] = _spread(by_round(result, system, work, RATE), 0)
        row[f"{system}, p50 ms"] = _spread(by_round(result, system, work, P50), 2)
        row[f"{system}, servers' µs a call"] = _cost(result, system, work)
    return row | {"times": _told(times(work), result)}


def _told(ratio: Callable[[Result], Spread], result: Result) -> str:
    try:
        found = ratio(result)
    except LookupError:
        return NONE
    return f"**{found.middle:.2f} ×** ({found.low:.2f} – {found.high:.2f})"


def _spread(values: ByRound, digits: int) -> str:
    if not values:
        return NONE
    found = Spread.of(list(values.values()))
    return f"{found.middle:,.{digits}f} ({found.low:,.{digits}f} – {found.high:,.{digits}f})"


def _cost(result: Result, system: str, work: StoreWork) -> str:
    """Processor time of all three servers."""
    records, seconds = (by_round(result, system, work, key) for key in ("records", "server_core_s"))
    costs = [seconds[number] / records[number] * 1e6 for number in seconds.keys() & records.keys()]
    return f"{Spread.of(costs).middle:,.0f}" if costs else NONE

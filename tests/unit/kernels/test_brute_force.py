"""On short histories every kernel agrees with a check that looks at each value and each pair, however they are cut."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.kernels.checks import CHECKS
from dledger.kernels.history import APPEND, FAIL, FINAL, INFO, LOCAL_READ, OK, PROCESS_SHIFT, READ
from dledger.kernels.kernel import Kernel
from tests.unit.kernels.histories import Row, batches_of, value

Place = tuple[int, int]
"""An index and a value."""

READS = (READ, LOCAL_READ, FINAL)


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """Appends and reads of a few values at a few indexes, as right or as wrong as chance has it."""
    rows: list[Row] = []
    numbers: Counter[int] = Counter()
    for _ in range(draw(st.integers(0, 8))):
        process, count = draw(st.integers(1, 2)), draw(st.integers(1, 3))
        outcome = draw(st.sampled_from([OK, OK, INFO, FAIL]))
        index = draw(st.integers(0, 8)) if outcome == OK else -1
        begin, end = draw(times())
        first = value(process, numbers[process])
        numbers[process] += count
        rows.append(Row(process, APPEND, outcome, begin, end, first, index, count))
    for call in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(READS))
        begin, end = draw(times())
        start = draw(st.integers(0, 2))
        stop = draw(st.integers(start, 9))
        reader = draw(st.sampled_from([500, 501]))
        rows += [
            Row(reader, kind, OK, begin, end, first, index, count, read_start=start, read_end=stop, call=call)
            for first, index, count in draw(st.lists(found_runs(), min_size=1, max_size=3))
        ]
    return rows


def times() -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda pair: (min(pair), max(pair)))


def found_runs() -> st.SearchStrategy[tuple[int, int, int]]:
    values = st.builds(value, st.integers(1, 2), st.integers(0, 9))
    return st.tuples(values, st.integers(0, 8), st.integers(0, 3))


def values_of(row: Row) -> range:
    return range(row.first_value, row.first_value + row.count)


def places_of(row: Row) -> list[Place]:
    return [(row.first_index + n, row.first_value + n) for n in range(row.count)]


def set_violations(rows: list[Row]) -> dict[str, int]:
    attempted = {v for row in rows if row.kind == APPEND for v in values_of(row)}
    acked = {v for row in rows if row.kind == APPEND and row.outcome == OK for v in values_of(row)}
    failed = {v for row in rows if row.kind == APPEND and row.outcome == FAIL for v in values_of(row)}
    seen = {place for row in rows if row.kind in READS for place in places_of(row)}
    seen_values = {v for _, v in seen}
    finals: dict[int, set[int]] = {row.process: set() for row in rows if row.kind == FINAL}
    for row in rows:
        if row.kind == FINAL:
            finals[row.process] |= set(values_of(row))
    return {
        "lost": sum(len(acked - final) for final in finals.values()),
        "unexpected": len(seen_values - attempted) + len(seen_values & failed),
        "vanished": sum(len(seen_values - final) for final in finals.values()),
        "duplicated": len(seen) - len(seen_values),
    }


def place_violations(rows: list[Row]) -> dict[str, int]:
    told = {place for row in rows if row.outcome == OK for place in places_of(row)}
    gaps = out_of_order = 0
    for reader in {row.process for row in rows if row.kind == FINAL}:
        mine = {place for row in rows if row.kind == FINAL and row.process == reader for place in places_of(row)}
        if not mine:
            continue
        indexes = [index for index, _ in mine]
        gaps += max(indexes) + 1 - min(indexes) - len(set(indexes)) + len(indexes) - len(set(indexes))
        out_of_order += sum(late_runs(mine, process) for process in (1, 2))
    return {"conflicts": len(told) - len({index for index, _ in told}), "out_of_order": out_of_order, "gaps": gaps}


def late_runs(places: set[Place], process: int) -> int:
    """Of the runs of one process, by index, those that begin below a value of an earlier one."""
    mine = [place for place in places if place[1] >> PROCESS_SHIFT == process]
    by_offset = sorted(mine, key=lambda place: (place[1] - place[0], place[0]))
    runs: list[tuple[int, int, int]] = []
    for _, group in groupby(enumerate(by_offset), key=lambda pair: (pair[1][1] - pair[1][0], pair[1][0] - pair[0])):
        members = [place for _, place in group]
        runs.append((members[0][0], members[0][1], members[-1][1]))
    runs.sort(key=lambda run: run[0])
    # Runs that begin at one index are told apart by nothing: the kernel's order is that of the offsets.
    highest, late = -1, 0
    for _, first, last in runs:
        late += first < highest
        highest = max(highest, last)
    return late


def time_violations(rows: list[Row]) -> dict[str, int]:
    acked = [row for row in rows if row.kind == APPEND and row.outcome == OK]
    known = [(row.completed_ns, row.first_index + row.count - 1) for row in acked]
    known += [(row.completed_ns, row.read_end - 1) for row in rows if row.kind in READS]
    invoked = {v: row.invoked_ns for row in rows if row.kind == APPEND for v in values_of(row)}
    found = [row for row in rows if row.kind in READS and row.count]

    def known_before(at_ns: int) -> int:
        return max((index for completed_ns, index in known if completed_ns < at_ns), default=-1)

    reordered = {row.first_value for row in acked if row.first_index <= known_before(row.invoked_ns)}
    reordered |= {
        row.first_value
        for row in found
        if row.first_value in invoked and row.first_index <= known_before(invoked[row.first_value])
    }
    lasts = [(row, row.first_value + row.count - 1) for row in found]
    reads = {(row.invoked_ns, row.read_end) for row in rows if row.kind in (READ, FINAL)}
    return {
        "reordered": len(reordered),
        "stale": sum(end - 1 < known_before(at_ns) for at_ns, end in reads),
        "premature": len({row.first_value for row, last in lasts if row.completed_ns < invoked.get(last, -1)}),
    }


def range_violations(rows: list[Row]) -> dict[str, int]:
    held: Counter[tuple[int, int, int, int]] = Counter()
    for row in rows:
        if row.kind in READS:
            held[row.process, row.call, row.read_start, row.read_end] += row.count
    wanted = {key: key[3] - key[2] for key in held}
    return {
        "incomplete": sum(held[key] < wanted[key] for key in held),
        "overfull": sum(held[key] > wanted[key] for key in held),
    }


BRUTE = {
    "set": set_violations,
    "places": place_violations,
    "time-order": time_violations,
    "ranges": range_violations,
}


def judged(kernel: Kernel, rows: list[Row], size: int, *, merged_twice: bool) -> dict[str, int]:
    """The kernel's violations, from batches of ``size`` rows, merged at once or in a tree, last first."""
    partials = [kernel.partial(batch) for batch in batches_of(rows, size)]
    if merged_twice:
        half = len(partials) // 2
        partials = [kernel.merge(partials[half:]), kernel.merge(partials[:half])]
    return dict(kernel.findings(kernel.merge(partials)).violations)


@settings(max_examples=400, deadline=None)
@given(histories(), st.integers(1, 10), st.booleans())
def test_kernels_agree_with_brute_force_however_the_history_is_cut(
    rows: list[Row], size: int, merged_twice: bool
) -> None:
    for kernel in CHECKS:
        assert judged(kernel, rows, size, merged_twice=merged_twice) == BRUTE[kernel.name](rows), kernel.name

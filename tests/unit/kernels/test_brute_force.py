"""On short histories every kernel agrees with a check that looks at each value and each pair, however they are cut."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.kernels import shards
from dledger.kernels.checks import check_history
from dledger.kernels.history import APPEND, FAIL, FINAL, INFO, LOCAL_READ, OK, PROCESS_SHIFT, READ
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
        rows.append(Row(process, APPEND, outcome, begin, end, first, index, count, term=draw(terms())))
    for call in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(READS))
        begin, end = draw(times())
        start = draw(st.integers(0, 2))
        stop = draw(st.integers(start, 9))
        reader = draw(st.sampled_from([500, 501]))
        rows += [
            Row(reader, kind, OK, begin, end, first, index, count, draw(terms()), start, stop, call)
            for first, index, count in draw(st.lists(found_runs(), min_size=1, max_size=3))
        ]
    return rows


def times() -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda pair: (min(pair), max(pair)))


def terms() -> st.SearchStrategy[int]:
    """0: it is not known."""
    return st.integers(0, 3)


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
        out_of_order += sum(late_values(mine, process) for process in (1, 2))
    return {"conflicts": len(told) - len({index for index, _ in told}), "out_of_order": out_of_order, "gaps": gaps}


def late_values(places: set[Place], process: int) -> int:
    """Of the values of one process, by index, those that are less than the one before."""
    values = [value for _, value in sorted(places) if value >> PROCESS_SHIFT == process]
    return sum(later < before for before, later in pairwise(values))


def time_violations(rows: list[Row]) -> dict[str, int]:
    acked = [row for row in rows if row.kind == APPEND and row.outcome == OK]
    known = [(row.completed_ns, row.first_index + row.count - 1) for row in acked]
    known += [(row.completed_ns, row.read_end - 1) for row in rows if row.kind in READS]
    unheard = {v: row.invoked_ns for row in rows if row.outcome == INFO for v in values_of(row)}
    found = [row for row in rows if row.kind in READS and row.count]

    def known_before(at_ns: int) -> int:
        return max((index for completed_ns, index in known if completed_ns < at_ns), default=-1)

    reordered = {
        (row.first_index, row.invoked_ns, row.first_value)
        for row in acked
        if row.first_index <= known_before(row.invoked_ns)
    }
    reordered |= {
        (row.first_index, unheard[row.first_value], row.first_value)
        for row in found
        if row.first_value in unheard and row.first_index <= known_before(unheard[row.first_value])
    }
    reads = {(row.invoked_ns, row.read_end) for row in rows if row.kind in (READ, FINAL)}
    return {"reordered": len(reordered), "stale": sum(end - 1 < known_before(at_ns) for at_ns, end in reads)}


def cause_violations(rows: list[Row]) -> dict[str, int]:
    invoked = {v: row.invoked_ns for row in rows if row.kind == APPEND for v in values_of(row)}
    found = [(row, row.first_value + row.count - 1) for row in rows if row.kind in READS and row.count]
    return {"premature": len({last for row, last in found if row.completed_ns < invoked.get(last, -1)})}


def term_violations(rows: list[Row]) -> dict[str, int]:
    told = {(row.first_index + n, row.term) for row in rows if row.outcome == OK and row.term for n in range(row.count)}
    last = {term: index for index, term in sorted(told)}
    return {
        "two_terms": len(told) - len({index for index, _ in told}),
        "falling_terms": sum(any(other > term and at <= last[term] for at, other in told) for term in last),
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
    "causes": cause_violations,
    "terms": term_violations,
    "ranges": range_violations,
}


def shows_an_index_twice(rows: list[Row]) -> bool:
    """In some final read: then what is behind what is nobody's to say."""
    finals = {(row.process, *place) for row in rows if row.kind == FINAL for place in places_of(row)}
    return len({(process, index) for process, index, _ in finals}) < len(finals)


@settings(max_examples=100, deadline=None)
@given(histories(), st.integers(1, 10), st.integers(1, 30), st.integers(1, 4))
def test_checks_agree_with_brute_force_in_whatever_batches_and_shards(
    rows: list[Row], batch_rows: int, rows_a_shard: int, block: int
) -> None:
    with mock.patch.object(shards, "BLOCK", block):
        found = check_history(lambda: batches_of(rows, batch_rows), rows_a_shard=rows_a_shard)
    for name, brute in BRUTE.items():
        told, expected = dict(found[name].violations), brute(rows)
        if name == "places" and shows_an_index_twice(rows):
            del told["out_of_order"], expected["out_of_order"]
        assert told == expected, name

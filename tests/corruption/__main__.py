"""``python -m tests.corruption [--quick]``: every byte that a node stores, damaged; a table of what became of it.

Every bit of every byte by itself, then all eight; every sector zeroed, or holding another one's bytes; every file gone,
or cut short; once for a node that is alone, once beside others that have good copies of every frame. Exits with 1 when
one outcome is WRONG: something else was served, or missing, or forgotten, without a word.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path

from tests.corruption.damage import FLIPS, INVERTED, Damage, damaged_bytes, damaged_files, damaged_sectors
from tests.corruption.expected import Outcome
from tests.corruption.node import StoredNode, stored_node
from tests.corruption.outcome import outcome_of
from tests.support.choices import positive
from tests.support.pool import processes, until_interrupted
from tests.support.virtual_time import run_virtual

FOREVER_S = 1e9
QUICK_STRIDE = 64
MOST_SHOWN = 20

Table = Counter[tuple[str, Outcome]]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.corruption", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one pattern a byte, and a part of the room not in use")
    parser.add_argument("--jobs", type=positive, default=os.cpu_count() or 1)
    parser.add_argument("--summary", type=Path, help="writes the tables here, as JSON")
    options = parser.parse_args()
    total = 0
    tables: dict[str, dict[str, dict[str, int]]] = {}
    wrong: list[str] = []
    with processes(options.jobs, _quiet) as pool:
        for has_peers in (False, True):
            table: Table = Counter()
            judge = partial(_part, has_peers=has_peers, quick=options.quick, parts=options.jobs)
            for counted, found in pool.map(judge, range(options.jobs)):
                table += counted
                wrong += found
            title = "beside others" if has_peers else "a node alone"
            _show(title, table)
            tables[title] = _by_structure(table)
            total += table.total()
    if options.summary is not None:
        options.summary.write_text(json.dumps({"table": tables}), encoding="utf-8")
    for each in wrong[:MOST_SHOWN]:
        print(f"WRONG {each}")
    print(f"{total} damages, {len(wrong)} wrong")
    return 1 if wrong else 0


def _quiet() -> None:
    logging.disable(logging.CRITICAL)  # every start would tell what it found


def _part(part: int, *, has_peers: bool, quick: bool, parts: int) -> tuple[Table, list[str]]:
    """Every ``parts``-th damage."""
    return run_virtual(_judge(has_peers=has_peers, quick=quick, part=part, parts=parts), limit_s=FOREVER_S)


async def _judge(*, has_peers: bool, quick: bool, part: int, parts: int) -> tuple[Table, list[str]]:
    node = await stored_node()
    table: Table = Counter()
    wrong = []
    for damage in islice(_damages(node, quick=quick), part, None, parts):
        outcome, reason = await outcome_of(node, damage, has_peers=has_peers)
        table[damage.structure, outcome] += 1
        if reason:
            wrong.append(f"{damage}: {reason}")
    return table, wrong


def _damages(node: StoredNode, *, quick: bool) -> Iterator[Damage]:
    regions = node.regions()
    patterns = (INVERTED,) if quick else (*FLIPS, INVERTED)
    stride = QUICK_STRIDE if quick else 1
    return chain(
        damaged_bytes(node, regions, patterns, stride), damaged_sectors(node, regions), damaged_files(node, regions)
    )


def _by_structure(table: Table) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (structure, outcome), count in sorted(table.items()):
        found.setdefault(structure, {})[outcome] = count
    return found


def _show(title: str, table: Table) -> None:
    """A line for each structure, a column for each outcome."""
    columns = [column for column in Outcome if any(outcome is column for _, outcome in table)]
    print(f"{title:60s}" + "".join(f"{column:>20s}" for column in columns))
    for structure in sorted({structure for structure, _ in table}):
        print(f"{structure:60s}" + "".join(f"{table[structure, column] or '–':>20}" for column in columns))


if __name__ == "__main__":
    sys.exit(until_interrupted(main))

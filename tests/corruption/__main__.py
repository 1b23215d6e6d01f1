"""``python -m tests.corruption [--quick] [--part K --parts N]``: every byte that a node stores, damaged; a table of
what became of it.

Every bit of every byte by itself, then all eight; every sector zeroed, or holding another one's bytes; every file gone,
or cut short: once for a node that is alone, once given good copies of what it says is damaged. Then every byte (of
room not in use every 64th), sector and file of one of three nodes that see to it themselves; and rot on all three, for
each way to leave one good copy of every frame. Exits with 1 when one outcome is WRONG: something else was served, or
missing, or forgotten, and nothing said so.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice
from typing import Any, Protocol

from tests.corruption.damage import FLIPS, INVERTED, Damage, Pattern, damaged_bytes, damaged_files, damaged_sectors
from tests.corruption.everywhere import assignments, outcome_everywhere
from tests.corruption.expected import Outcome
from tests.corruption.node import StoredDisk, stored_node
from tests.corruption.outcome import outcome_of
from tests.corruption.trio import crashed, outcome_among_three
from tests.support.choices import number, positive, writable
from tests.support.pool import processes, until_interrupted
from tests.support.virtual_time import run_virtual

QUICK_STRIDE = 64
QUICK_EVERY = 29
"""Of the cases with three nodes."""
MOST_SHOWN = 20

Table = Counter[tuple[str, Outcome]]


class Case(Protocol):
    """What is damaged in one run."""

    @property
    def structure(self) -> str:
        """The line of the table that it belongs to."""


Scene = tuple[Iterator[Case], Callable[[Any], tuple[Outcome, str]]]
"""Its cases, and who judges one."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.corruption", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one pattern a byte, and a part of the room not in use")
    parser.add_argument("--jobs", type=positive, default=os.cpu_count() or 1)
    parser.add_argument("--summary", type=writable, help="writes the tables here, as JSON")
    parser.add_argument("--part", type=number, default=0, metavar="K", help="from 0: every N-th damage alone")
    parser.add_argument("--parts", type=positive, default=1, metavar="N", help="of all the damages")
    options = parser.parse_args()
    if options.part >= options.parts:
        parser.error(f"there is no part {options.part} of {options.parts}: they are counted from 0")
    total = 0
    tables: dict[str, dict[str, dict[str, int]]] = {}
    wrong: list[str] = []
    with processes(options.jobs, _quiet) as pool:
        for title in SCENES:
            table: Table = Counter()
            judge = partial(share, title=title, quick=options.quick, step=options.parts * options.jobs)
            for counted, found in pool.map(judge, shares(options.part, options.parts, options.jobs)):
                table += counted
                wrong += found
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


def shares(part: int, parts: int, jobs: int) -> range:
    """The first damage of each job. Whatever ``jobs`` is, a part is the same damages."""
    return range(part, parts * jobs, parts)


def share(first: int, *, title: str, quick: bool, step: int) -> tuple[Table, list[str]]:
    """Every ``step``-th damage from ``first`` on."""
    cases, judge = SCENES[title](quick)
    table: Table = Counter()
    wrong = []
    for case in islice(cases, first, None, step):
        outcome, reason = judge(case)
        table[case.structure, outcome] += 1
        if reason:
            wrong.append(f"{title}: {case}: {reason}")
    return table, wrong


def _of_one(quick: bool, *, has_peers: bool) -> Scene:
    node = run_virtual(stored_node())
    patterns = (INVERTED,) if quick else (*FLIPS, INVERTED)
    stride = QUICK_STRIDE if quick else 1
    return _damages(node.disk, patterns, stride), lambda damage: run_virtual(
        outcome_of(node, damage, has_peers=has_peers)
    )


def _of_three(quick: bool) -> Scene:
    disk = crashed()
    damages = islice(_damages(disk, (INVERTED,), QUICK_STRIDE), 0, None, QUICK_EVERY if quick else 1)
    return damages, partial(outcome_among_three, disk)


def _everywhere(quick: bool) -> Scene:
    cases = islice(assignments(), 0, None, QUICK_EVERY if quick else 1)
    return cases, outcome_everywhere


SCENES: dict[str, Callable[[bool], Scene]] = {
    "a node alone": partial(_of_one, has_peers=False),
    "given good copies": partial(_of_one, has_peers=True),
    "one of three nodes": _of_three,
    "all of three nodes": _everywhere,
}
"""By title."""


def _damages(disk: StoredDisk, patterns: tuple[Pattern, ...], stride: int) -> Iterator[Damage]:
    regions = disk.regions()
    return chain(
        damaged_bytes(disk, regions, patterns, stride), damaged_sectors(disk, regions), damaged_files(disk, regions)
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

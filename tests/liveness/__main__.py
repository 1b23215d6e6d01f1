"""``python -m tests.liveness``: every connection graph, with every earlier leader, in every manner.

All 1,024 undirected graphs of five nodes and all 64 directed ones of three. ``--graph N [--directed]`` shows one
graph's cases.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Iterable
from typing import NamedTuple

from tests.liveness.graphs import DIRECTED_THREE, UNDIRECTED_FIVE, Shape
from tests.liveness.run import GRANTED, STABLE, TIMEOUT_S, Case, Kind, Outcome, run_case
from tests.support.choices import positive
from tests.support.pool import processes, until_interrupted

SHAPES = (DIRECTED_THREE, UNDIRECTED_FIVE)


class Done(NamedTuple):
    """One graph's cases, and what became of them."""

    shape: int
    number: int
    outcomes: list[Outcome]


def cases_of(shape: Shape, number: int) -> list[Case]:
    return [Case(shape, number, leader, kind) for kind in Kind for leader in range(shape.size)]


def _run_graph(job: tuple[int, int]) -> Done:
    logging.disable(logging.CRITICAL)  # thousands of nodes end here, and each says so
    shape, number = job
    return Done(shape, number, [run_case(case) for case in cases_of(SHAPES[shape], number)])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.liveness", description=__doc__)
    parser.add_argument("--jobs", type=positive, default=os.cpu_count() or 1)
    parser.add_argument("--graph", type=int, help="one graph, case by case")
    parser.add_argument("--directed", action="store_true", help="--graph is one of three nodes")
    options = parser.parse_args()
    if options.directed and options.graph is None:
        parser.error("--directed says of which kind one graph is: say which with --graph")
    if options.graph is not None:
        shape = DIRECTED_THREE if options.directed else UNDIRECTED_FIVE
        if options.graph not in range(shape.graph_count):
            parser.error(f"there is no graph {options.graph}; there are 0 to {shape.graph_count - 1}")
        return _show(SHAPES.index(shape), options.graph)
    return _all(options.jobs)


def _show(shape: int, number: int) -> int:
    done = _run_graph((shape, number))
    for case, outcome in zip(cases_of(SHAPES[shape], number), done.outcomes, strict=True):
        print(f"{case}: {_say(outcome)}")
    failed = sum(outcome.is_failed for outcome in done.outcomes)
    print(f"{len(done.outcomes) - failed} passed, {failed} failed")
    return int(bool(failed))


def _say(outcome: Outcome) -> str:
    if outcome.failure:
        return outcome.failure
    if outcome.led_s is not None:
        return f"led after {outcome.led_s / TIMEOUT_S:.2f} election timeouts"
    return f"nobody led within {GRANTED} election timeouts" if outcome.is_eligible else "nobody has a quorum"


def _all(jobs: int) -> int:
    todo = [(at, number) for at, shape in enumerate(SHAPES) for number in range(shape.graph_count)]
    finished: list[Done] = []
    began_s = time.monotonic()
    with processes(jobs) as pool:
        for count, done in enumerate(pool.map(_run_graph, todo), 1):
            finished.append(done)
            if count % 50 == 0:
                rate = count / (time.monotonic() - began_s)
                print(f"{count} of {len(todo)} graphs, {rate:.1f} a second", file=sys.stderr, flush=True)
    return _report(finished)


def _report(finished: Iterable[Done]) -> int:
    found = [
        (case, outcome)
        for done in finished
        for case, outcome in zip(cases_of(SHAPES[done.shape], done.number), done.outcomes, strict=True)
    ]
    failed = [(case, outcome) for case, outcome in found if outcome.is_failed]
    for case, outcome in failed:
        print(f"FAILED {case}: {_say(outcome)}")
    print(f"A leader that stays for {STABLE} election timeouts ({TIMEOUT_S:g} s) is to be there within {GRANTED}.")
    print(
        "hub: a node has links both ways to a quorum; up to date: its log is one that such a quorum votes for as it is"
    )
    print(f"{'graphs':16} {'manner':8} {'cases':>6} {'hub':>6} {'up to date':>10} {'led':>6} {'<= 2':>6} {'worst':>6}")
    for shape in SHAPES:
        for kind in Kind:
            print(_row(shape, kind, [each for case, each in found if case.shape == shape and case.kind is kind]))
    print(f"{len(found) - len(failed)} passed, {len(failed)} failed")
    return int(bool(failed))


def _row(shape: Shape, kind: Kind, outcomes: list[Outcome]) -> str:
    led = [outcome.led_s / TIMEOUT_S for outcome in outcomes if outcome.led_s is not None]
    name = f"{shape.graph_count} {'directed' if shape.is_directed else 'undirected'}"
    eligible = sum(outcome.is_eligible for outcome in outcomes)
    up_to_date = sum(outcome.is_up_to_date for outcome in outcomes)
    soon = sum(each <= 2 for each in led)
    return (
        f"{name:16} {kind.value:8} {len(outcomes):6} {eligible:6} {up_to_date:10} {len(led):6} {soon:6} "
        f"{max(led, default=0):6.2f}"
    )


if __name__ == "__main__":
    sys.exit(until_interrupted(main))

"""``python -m tests.simulation --seed N [--trace]``, or ``--seeds FIRST:END [--jobs 2]``, or ``--of-commit COUNT``, or
``--mutants [NAME …]``. With ``--store`` the seeds are those of the store."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from tests.simulation.branches import OF_THE_LOG, Named, missing
from tests.simulation.plant import Mutant, Verdict, hunt, mutants
from tests.simulation.run import Outcome, run_seed
from tests.simulation.store.branches import OF_THE_STORE
from tests.simulation.store.run import run_store_seed
from tests.support import revision
from tests.support.choices import Parser, number, positive, span, writable
from tests.support.pool import processes, until_interrupted


class _Kind(NamedTuple):
    """Of seeds."""

    run: Callable[..., Outcome]
    command: str
    named: tuple[Named, ...]


_LOG = _Kind(run_seed, "python -m tests.simulation", OF_THE_LOG)
_STORE = _Kind(run_store_seed, "python -m tests.simulation --store", OF_THE_STORE)


def main() -> int:
    parser = Parser(prog="python -m tests.simulation", description=__doc__)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--seed", type=number, help="one seed")
    what.add_argument("--seeds", type=span, default="0:100", metavar="FIRST:END", help="the end not included")
    what.add_argument("--of-commit", type=positive, metavar="COUNT", help="so many seeds, from the commit's hash")
    what.add_argument("--until-failure", type=span, metavar="FIRST:END", help="the first seed that fails, or clean")
    what.add_argument("--mutants", nargs="*", metavar="NAME", help="the planted bugs, or those of these names")
    parser.add_argument("--store", action="store_true", help="seeds of the store's simulation")
    parser.add_argument("--trace", action="store_true", help="shows what happens")
    parser.add_argument("--max-seeds", type=positive, default=1000, help="for each mutant")
    parser.add_argument("--jobs", type=positive, default=os.cpu_count() or 1)
    parser.add_argument("--summary", type=writable, help="writes here, as JSON, what many seeds or mutants came to")
    options = parser.parse_args()
    if options.trace and options.seed is None:
        parser.error("--trace shows one seed: say which with --seed")
    kind = _STORE if options.store else _LOG
    if options.seed is not None:
        return _one(kind, options.seed, show=options.trace)
    if options.until_failure:
        return _until_failure(kind, options.until_failure)
    if options.mutants is not None:
        try:
            chosen = mutants(*options.mutants)
        except LookupError as unknown:
            parser.error(str(unknown))
        return _mutants(chosen, options.max_seeds, options.jobs, options.summary)
    seeds = _of_commit(kind, options.of_commit) if options.of_commit else options.seeds
    return _many(kind, seeds, options.jobs, options.summary)


def _of_commit(kind: _Kind, count: int) -> range:
    """Says which they are, and how to run them again on another commit."""
    commit = revision.commit()
    first = revision.first_seed(commit)
    again = f"{kind.command} --seeds {first}:{first + count}"
    print(f"{count} seeds {revision.origin(commit)}; again: {again}", flush=True)
    return range(first, first + count)


def _summarise(file: Path | None, summary: dict[str, Any]) -> None:
    if file is not None:
        file.write_text(json.dumps(summary), encoding="utf-8")


def _until_failure(kind: _Kind, seeds: range) -> int:
    for seed in seeds:
        outcome = kind.run(seed)
        if outcome.failure:
            print(f"failed {seed} {outcome.invariant}")
            return 1
    print("clean")
    return 0


def _mutants(chosen: list[Mutant], max_seeds: int, jobs: int, summary: Path | None) -> int:
    """A line each; 1 when one was missed."""
    verdicts: list[Verdict] = []
    with ThreadPoolExecutor(jobs) as pool:
        for verdict in pool.map(partial(hunt, max_seeds=max_seeds), chosen):
            print(verdict, flush=True)
            verdicts.append(verdict)
    missed = sum(not verdict.invariant for verdict in verdicts)
    _summarise(summary, {"mutants": [verdict.summary for verdict in verdicts]})
    print(f"{len(chosen) - missed} caught, {missed} missed")
    return 1 if missed else 0


def _one(kind: _Kind, seed: int, *, show: bool) -> int:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # who reads the first lines of a trace alone may go
    outcome = kind.run(seed, show=show)
    what = f"{outcome.acknowledged} appends acknowledged, {outcome.elections} elections"
    print(outcome.failure or f"seed {seed}: {what}, {outcome.simulated_s:.1f} simulated seconds")
    for name, count in sorted(outcome.hits.items()):
        print(f"{count:6d}  {name}")
    print(f"trace hash {outcome.digest}")
    return 1 if outcome.failure else 0


def _many(kind: _Kind, seeds: range, jobs: int, summary: Path | None) -> int:
    began_s = time.monotonic()
    failed: list[Outcome] = []
    hits: Counter[str] = Counter()
    simulated_s = 0.0
    with processes(jobs) as pool:
        for done, outcome in enumerate(pool.map(kind.run, seeds, chunksize=4), 1):
            hits.update(outcome.hits)
            simulated_s += outcome.simulated_s
            if outcome.failure:
                failed.append(outcome)
                again = f"{kind.command} --seed {outcome.seed} --trace"
                print(f"seed {outcome.seed} FAILED: {outcome.invariant}; again: {again}", flush=True)
            if done in (10, 30) or done % 100 == 0:
                rate = done / (time.monotonic() - began_s)
                print(f"{done} seeds, {len(failed)} failed, {rate:.2f} a second", file=sys.stderr, flush=True)
    for name, count in sorted(hits.items()):
        print(f"{count:8d}  {name}")
    never_met = missing(hits, len(seeds), kind.named)
    for name in never_met:
        print(f"NEVER MET: {name}")
    seconds = time.monotonic() - began_s
    known = {"failed": [(outcome.seed, outcome.invariant) for outcome in failed]} if failed else {}
    _summarise(summary, {"simulated_s": round(simulated_s), "hits": dict(sorted(hits.items())), **known})
    print(f"{len(seeds) / seconds:.2f} seeds a second, {simulated_s / 3600:.2f} simulated hours")
    print(f"{len(seeds) - len(failed)} passed, {len(failed) + len(never_met)} failed")
    return 1 if failed or never_met else 0


if __name__ == "__main__":
    sys.exit(until_interrupted(main))

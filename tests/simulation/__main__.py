"""``python -m tests.simulation --seed N [--trace]``, or ``--seeds FIRST:END [--jobs 2]``, or ``--mutants [NAME]``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

from tests.simulation.branches import missing
from tests.simulation.plant import Mutant, Results, Verdict, canaries, hunt, mutants
from tests.simulation.run import Outcome, run_seed

ENOUGH_SEEDS = 100
"""So many must meet every kind of fault, and take every branch that has a name."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="one seed")
    parser.add_argument("--trace", action="store_true", help="shows what happens")
    parser.add_argument("--seeds", default="0:100", help="FIRST:END, the end not included")
    parser.add_argument("--until-failure", metavar="FIRST:END", help="the first seed that fails, or clean")
    parser.add_argument("--mutants", nargs="?", const="", metavar="NAME", help="the planted bugs, or those named so")
    parser.add_argument("--canaries", action="store_true", help="the planted bugs that a few seeds find")
    parser.add_argument("--results", type=Path, help="keeps the verdicts on planted bugs here, and goes on from there")
    parser.add_argument("--max-seeds", type=int, default=1000, help="for each mutant")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.seed is not None:
        return _one(options.seed, show=options.trace)
    if options.until_failure:
        return _until_failure(_range(options.until_failure))
    if options.mutants is not None or options.canaries:
        chosen = canaries() if options.canaries else mutants(options.mutants)
        return _mutants(chosen, options.max_seeds, options.jobs, Results(options.results))
    return _many(_range(options.seeds), options.jobs)


def _range(text: str) -> range:
    first, end = map(int, text.split(":"))
    return range(first, end)


def _until_failure(seeds: range) -> int:
    for seed in seeds:
        outcome = run_seed(seed)
        if outcome.failure:
            print(f"failed {seed} {outcome.invariant}")
            return 1
    print("clean")
    return 0


def _mutants(chosen: list[Mutant], max_seeds: int, jobs: int, results: Results) -> int:
    """A line each; 1 when one was missed."""

    def verdict_on(mutant: Mutant) -> Verdict:
        verdict = results.find(mutant, max_seeds)
        if verdict is None:
            verdict = hunt(mutant, max_seeds)
            results.keep(verdict)
        return verdict

    missed = 0
    with ThreadPoolExecutor(jobs) as pool:
        for verdict in pool.map(verdict_on, chosen):
            print(verdict, flush=True)
            missed += not verdict.invariant
    print(f"{len(chosen) - missed} caught, {missed} missed")
    return 1 if missed else 0


def _one(seed: int, *, show: bool) -> int:
    outcome = run_seed(seed, show=show)
    print(outcome.failure or f"seed {seed}: {outcome.acknowledged} acknowledged, {outcome.elections} elections")
    for name, count in sorted(outcome.hits.items()):
        print(f"{count:6d}  {name}")
    print(f"trace hash {outcome.digest}")
    return 1 if outcome.failure else 0


def _many(seeds: range, jobs: int) -> int:
    began_s = time.monotonic()
    failed: list[Outcome] = []
    hits: Counter[str] = Counter()
    simulated_s = 0.0
    with ProcessPoolExecutor(jobs) as pool:
        for done, outcome in enumerate(pool.map(run_seed, seeds, chunksize=4), 1):
            hits.update(outcome.hits)
            simulated_s += outcome.simulated_s
            if outcome.failure:
                failed.append(outcome)
                print(f"seed {outcome.seed} FAILED: {outcome.invariant}", flush=True)
            if done % 100 == 0:
                rate = done / (time.monotonic() - began_s)
                print(f"{done} seeds, {len(failed)} failed, {rate:.2f} a second", file=sys.stderr, flush=True)
    for name, count in sorted(hits.items()):
        print(f"{count:8d}  {name}")
    never_met = missing(hits) if len(seeds) >= ENOUGH_SEEDS else []
    for name in never_met:
        print(f"NEVER MET: {name}")
    seconds = time.monotonic() - began_s
    print(f"{len(seeds) / seconds:.2f} seeds a second, {simulated_s / 3600:.2f} simulated hours")
    print(f"{len(seeds) - len(failed)} passed, {len(failed) + len(never_met)} failed")
    return 1 if failed or never_met else 0


if __name__ == "__main__":
    sys.exit(main())

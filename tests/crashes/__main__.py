"""``python -m tests.crashes [--quick] [SCENARIO …]``: a line for each scenario, and what was tried in all.

A scenario is cut at every call that changes something on the disk, before it and after it; then its recovery is, at
every such call of its own. At the same calls the process is killed too and started again: what it finds in the page
cache may not be on the disk, and the power goes at every call of that start.

At each point every subset of what was pending is tried: of up to 16 changes, and of up to 8 in a recovery. Of more it
is nothing, all, each alone, each missing, and a sample of the rest; how many such points there were is said. Of a
scenario's point up to 50 outcomes are recovered from under cuts of their own.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from concurrent.futures import Future, ProcessPoolExecutor, as_completed

from tests.crashes.explore import Tally, explore, explore_kills, explore_recovery
from tests.crashes.medium import Depth
from tests.crashes.scenarios import SCENARIOS
from tests.support.choices import positive
from tests.support.pool import processes, until_interrupted

FULL = Depth(exhaustive_up_to=16, samples=1000)
RECOVERY = Depth(exhaustive_up_to=8, samples=32)
QUICK = Depth(exhaustive_up_to=8, samples=16)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crashes", description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)}; all by default")
    parser.add_argument("--quick", action="store_true", help="a cut that takes about two minutes on two cores")
    parser.add_argument("--jobs", type=positive, default=os.cpu_count() or 1)
    options = parser.parse_args()
    chosen = options.scenarios or list(SCENARIOS)
    unknown = sorted(set(chosen) - set(SCENARIOS))
    if unknown:
        parser.error(f"there is no scenario {', '.join(unknown)}; there are: {', '.join(SCENARIOS)}")
    total = Tally("all")
    with processes(options.jobs, _quiet) as pool:
        for done in as_completed(_jobs(pool, chosen, quick=options.quick)):
            tally = done.result()
            total.add(tally)
            print(_line(tally), flush=True)
            for failure in tally.failures:
                print(f"  FAILED {failure}", flush=True)
    print(_line(total))
    tried = f"{total.points} crash points, {total.outcomes} outcomes, {total.starts} starts"
    print(f"{tried}, {len(total.failures)} failed")
    return 1 if total.failures else 0


def _quiet() -> None:
    logging.disable(logging.CRITICAL)  # every start of thousands would tell what it found


def _jobs(pool: ProcessPoolExecutor, chosen: list[str], *, quick: bool) -> list[Future[Tally]]:
    depth = QUICK if quick else FULL
    how = {"every": 6, "most_outcomes": 3} if quick else {"every": 1, "most_outcomes": 50}
    jobs = [pool.submit(explore_recovery, name, RECOVERY, **how) for name in chosen]
    jobs += [pool.submit(explore_kills, name, RECOVERY, every=30 if quick else 1) for name in chosen]
    return jobs + [pool.submit(explore, name, depth) for name in chosen]


def _line(tally: Tally) -> str:
    return (
        f"{tally.scenario:32s} {tally.calls:7d} calls {tally.points:7d} points ({tally.sampled_points} sampled) "
        f"{tally.outcomes:9d} outcomes {tally.starts:8d} starts {len(tally.failures)} failed"
    )


if __name__ == "__main__":
    sys.exit(until_interrupted(main))

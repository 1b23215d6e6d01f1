"""``python -m tests.fuzz --count 1000000 --seed 1``: mutated messages for every port and decoder.

Four targets: the decoders in this process, the engine of the client port in this process, nodes in memory with a member
among them that sends nonsense, and real nodes over sockets. The count is divided among them, and into slices. A slice
is a function of the seed and its number, but for what real sockets and disks do in between. ``--target`` runs one of
the four alone, and ``--of-commit`` takes the seed from the hash of the commit.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.decoders import Decoders
from tests.fuzz.http2 import Http2
from tests.fuzz.members import NonsenseMember
from tests.fuzz.ports import SILENT, fuzz_ports
from tests.support import revision
from tests.support.choices import positive, writable
from tests.support.pool import processes, until_interrupted

SHARES = {"decoders": 0.40, "http2": 0.25, "members": 0.15, "ports": 0.20}
SLICES = {"decoders": 50_000, "http2": 50_000, "members": 25_000, "ports": 100_000}
FUZZERS: dict[str, type[Decoders | Http2 | NonsenseMember]] = {
    "decoders": Decoders,
    "http2": Http2,
    "members": NonsenseMember,
}
"""Those that run in this process."""


class Slice(NamedTuple):
    target: str
    number: int
    messages: int
    seed: int


class Done(NamedTuple):
    slice: Slice
    outcomes: dict[str, int]
    duration_s: float
    failure: str = ""

    @property
    def looked_at(self) -> int:
        """What the count that was asked for means: all but the connections that say nothing."""
        return sum(count for outcome, count in self.outcomes.items() if outcome != SILENT)


def plan(count: int, seed: int, only: str | None = None) -> list[Slice]:
    found = []
    for target, share in SHARES.items():
        if only and target != only:
            continue
        left = count if only else round(count * share)
        number = 0
        while left > 0:
            found.append(Slice(target, number, min(left, SLICES[target]), seed))
            left -= SLICES[target]
            number += 1
    return found


def run_slice(job: Slice) -> Done:
    logging.disable(logging.CRITICAL)
    began_s = time.monotonic()
    try:
        outcomes, failure = _run(job), ""
    except Exception:  # noqa: BLE001 – whatever it is, it is what the slice found
        outcomes, failure = Counter[str](), traceback.format_exc()
    return Done(job, dict(outcomes), time.monotonic() - began_s, failure)


def _run(job: Slice) -> Counter[str]:
    seed = 1_000 * job.seed + job.number
    if job.target == "ports":
        return _run_ports(job.messages, seed)
    fuzz = FUZZERS[job.target](seed)
    fuzz.run(job.messages)
    return fuzz.outcomes


def _run_ports(count: int, seed: int) -> Counter[str]:
    data = Path(tempfile.mkdtemp(prefix="dledger-fuzz-"))
    try:
        outcomes = fuzz_ports(data, seed, count, _progress(count))
    finally:
        shutil.rmtree(data)
    return outcomes


def _progress(count: int) -> Callable[[int], None]:
    began_s, said_s = time.monotonic(), [time.monotonic()]

    def tell(done: int) -> None:
        now_s = time.monotonic()
        if now_s > said_s[0] + 10:
            said_s[0] = now_s
            print(f"  ports: {done} of {count}, {done / (now_s - began_s):.0f} a second", file=sys.stderr, flush=True)

    return tell


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--count", type=positive, default=100_000)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=int, default="1")  # as text: a number would make "--seed 1" pass for left out
    which.add_argument("--of-commit", action="store_true", help="the seed that comes from the commit's hash")
    parser.add_argument("--target", choices=SHARES, help="this one alone")
    parser.add_argument("--jobs", type=positive, default=2)
    parser.add_argument("--summary", type=writable, help="writes here, as JSON, how often each outcome came")
    options = parser.parse_args()
    seed = _of_commit(options.count, options.target) if options.of_commit else options.seed
    finished: list[Done] = []
    began_s, looked_at = time.monotonic(), 0
    with processes(options.jobs) as pool:
        for done in pool.map(run_slice, plan(options.count, seed, options.target)):
            looked_at += done.looked_at
            rate = looked_at / (time.monotonic() - began_s)
            verdict = "FAILED" if done.failure else "passed"
            said = f"{done.slice.target} {done.slice.number}: {verdict} in {done.duration_s:.0f} s; {rate:.0f} a second"
            print(said, file=sys.stderr, flush=True)
            if done.failure:
                print(done.failure)
            finished.append(done)
    return _report(finished, options.summary)


def _of_commit(count: int, target: str | None) -> int:
    """Says which it is, and how to run it again on another commit."""
    commit = revision.commit()
    seed = revision.first_seed(commit)
    again = f"python -m tests.fuzz --count {count} --seed {seed}" + (f" --target {target}" if target else "")
    print(f"seed {revision.origin(commit)}; again: {again}", flush=True)
    return seed


def _report(finished: Sequence[Done], summary: Path | None) -> int:
    outcomes: Counter[str] = Counter()
    for done in finished:
        outcomes.update({f"{done.slice.target}  {outcome}": count for outcome, count in done.outcomes.items()})
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:9d}  {outcome}")
    if summary is not None:
        summary.write_text(json.dumps({"outcomes": dict(sorted(outcomes.items()))}), encoding="utf-8")
    print(f"{sum(done.looked_at for done in finished):9d}  messages, calls and connections in all")
    failed = sum(bool(done.failure) for done in finished)
    print(f"{len(finished) - failed} passed, {failed} failed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(until_interrupted(main))

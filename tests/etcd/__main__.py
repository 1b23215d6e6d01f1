"""``python -m tests.etcd --operations 100000 --seed 1``: random operations, to etcd and to ours; equal answers but ids.

The operations come in episodes. Each begins with two empty stores, and is a function of the seed and its number. A
difference ends the run: its sequence is made shorter, and printed.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from tests.etcd.episode import Difference, ReferenceEnded, Server, play
from tests.etcd.operations import Operation, generate
from tests.etcd.programs import Lacking, program
from tests.etcd.servers import cluster, etcd, ours
from tests.etcd.shrink import shrunk
from tests.support.choices import Parser, number, positive, writable
from tests.support.pool import until_interrupted

SUBJECTS: dict[str, Server] = {"ours": ours, "cluster": cluster, "etcd": etcd}


def main() -> int:
    options = _options()
    try:
        program("etcd")
    except Lacking as why:
        print(why, file=sys.stderr)
        return 2
    subject = SUBJECTS[options.subject]
    done, episode, began_s = 0, options.episode, time.monotonic()
    while done < options.operations:
        operations = generate(1_000_000 * options.seed + episode, min(options.length, options.operations - done))
        difference = _play(operations, subject)
        if difference:
            _report(options, episode, operations, difference, subject)
            return 1
        done += len(operations)
        episode += 1
        rate = done / (time.monotonic() - began_s)
        print(f"episode {episode}: {done} of {options.operations} operations, {rate:.0f} a second", file=sys.stderr)
    print(f"{done} operations, {episode - options.episode} episodes: the answers are equal")
    return 0


def _play(operations: Sequence[Operation], subject: Server) -> Difference | None:
    try:
        return play(operations, etcd, subject)
    except ReferenceEnded:
        print("etcd has ended by itself: what is left of this episode is not compared", file=sys.stderr)
        return None


def _options() -> Namespace:
    parser = Parser(prog="python -m tests.etcd", description=__doc__)
    parser.add_argument("--operations", type=positive, default=10_000)
    parser.add_argument("--seed", type=number, default=1)
    parser.add_argument("--episode", type=number, default=0, help="begin with this one")
    parser.add_argument("--length", type=positive, default=1_000, help="operations an episode")
    parser.add_argument(
        "--subject", choices=SUBJECTS, default="ours", help="etcd: is the judge of one mind with itself?"
    )
    parser.add_argument("--shrink-seconds", type=number, default=120)
    parser.add_argument("--out", type=writable, help="writes the shortened sequence here")
    return parser.parse_args()


def _report(
    options: Namespace, episode: int, operations: Sequence[Operation], difference: Difference, subject: Server
) -> None:
    where = f"seed {options.seed}, episode {episode}, operation {difference.position}"
    print(f"{where}: {difference.what}", flush=True)

    def shows(fewer: Sequence[Operation]) -> bool:
        found = _play(fewer, subject)
        return found is not None and found.kind == difference.kind

    short = shrunk(operations[: difference.position + 1], shows, options.shrink_seconds)
    last = _play(short, subject) or difference
    lines = [*map(str, short), "", last.what]
    print(f"as short as it gets: {len(short)} operations\n" + "\n".join(lines))
    if options.out:
        Path(options.out).write_text("\n".join(lines), encoding="utf-8")
    print(f"again: python -m tests.etcd --seed {options.seed} --episode {episode} --length {options.length}")


if __name__ == "__main__":
    sys.exit(until_interrupted(main))

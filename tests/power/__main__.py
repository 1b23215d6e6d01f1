"""``python -m tests.power --filesystem ext4 --cuts 200``: power cuts under three nodes, each on a disk of its own.

Needs root on Linux. The last line says what was found; exits with 1 when something was lost, doubled or out of order,
and when no tail was cut: then nothing was tested. ``--lie`` has the nodes' syncs do nothing, and must fail.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.power.cuts import HONEST, LYING, Report, cut_power
from tests.power.volume import MAKE, CannotMountError
from tests.support.choices import positive


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.power", description=__doc__)
    parser.add_argument("--filesystem", choices=sorted(MAKE), default="ext4")
    parser.add_argument("--cuts", type=positive, default=200)
    parser.add_argument("--seed", type=int, default=None, help="of whom to cut, and when; a new one by default")
    parser.add_argument("--lie", action="store_true", help="the nodes run under eatmydata")
    options = parser.parse_args()
    if options.lie and shutil.which("eatmydata") is None:
        parser.error("--lie needs eatmydata, which is not installed: without it the nodes would sync after all")
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    data = Path(tempfile.mkdtemp(prefix="dledger-power-"))
    programs = [LYING] if options.lie else HONEST
    began_s = time.monotonic()

    def show(report: Report) -> None:
        print(f"{time.monotonic() - began_s:6.1f} s  {report}", file=sys.stderr, flush=True)

    try:
        report = asyncio.run(
            cut_power(data, options.filesystem, options.cuts, seed=seed, programs=programs, on_cut=show)
        )
    except KeyboardInterrupt:
        shutil.rmtree(data, ignore_errors=True)
        return 130
    except CannotMountError as reason:
        shutil.rmtree(data)
        print(f"skipped: {reason}")
        return 0
    if report.ok:
        shutil.rmtree(data)
    else:
        print(
            f"what the nodes said, and their disks as images, are kept in {data}",
            *report.refusals,
            sep="\n",
            file=sys.stderr,
        )
    print(f"{options.filesystem}, seed {seed}, {time.monotonic() - began_s:.0f} s: {report}")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())

"""``python -m tests.conformance [NAMES]``: foreign judges of dledger's gRPC, over HTTP/2 and in five languages.

h2spec, gRPC's interoperability tests both ways, and programs of other gRPC libraries that use a node's API. The tools
are installed below ``.make/conformance``.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

import uvloop

from tests.conformance import h2spec
from tests.conformance.api import judges as api
from tests.conformance.interop import foreign_clients, foreign_servers
from tests.conformance.judging import Case, Judge, Unavailable

JUDGES = (
    Judge("h2spec", h2spec.judge),
    Judge("interop-go", foreign_clients.judge_go),
    Judge("interop-java", foreign_clients.judge_java),
    Judge("channel", foreign_servers.judge),
    Judge("api", api.judge),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    names = [each.name for each in JUDGES]
    parser.add_argument("names", nargs="*", metavar="NAMES", help=f"of {', '.join(names)}; none: all")
    parser.add_argument("--verbose", action="store_true", help="names what passed as well")
    options = parser.parse_args()
    if unknown := set(options.names) - set(names):
        parser.error(f"there is no judge {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    chosen = [each for each in JUDGES if not options.names or each.name in options.names]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        cases = [case for each in chosen for case in runner.run(_judged(each, is_verbose=options.verbose))]
    failed = sum(bool(case.failure) for case in cases)
    passed = sum(not case.failure and not case.skipped for case in cases)
    print(f"{passed} passed, {failed} failed")
    return int(bool(failed))


async def _judged(judge: Judge, *, is_verbose: bool) -> list[Case]:
    began_s = time.monotonic()
    try:
        cases = await judge.judge()
    except Unavailable as reason:
        cases = [Case("its tools", str(reason))]
    for case in cases:
        if case.failure:
            print(f"  failed: {case.name}: {case.failure}")
        elif case.skipped:
            print(f"  not judged: {case.name}: {case.skipped}")
        elif is_verbose:
            print(f"  passed: {case.name}")
    applied = [case for case in cases if not case.skipped]
    good = sum(not case.failure for case in applied)
    print(f"{judge.name}: {good} of {len(applied)} passed in {time.monotonic() - began_s:.0f} s", flush=True)
    return cases


if __name__ == "__main__":
    sys.exit(main())

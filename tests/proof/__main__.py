"""``python -m tests.proof [--quick | --report] [FAMILY …]``: runs what does not hold yet of the sources as they are.

A slice that held is not run again until the sources that it rests on change. Ctrl-C costs only the slice under way: the
next run resumes behind it. ``Results.pending`` has the order. The results are in ``docs/proof``. The output of a slice
that failed is kept in ``.proof``, and the slice is run again the next time.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.proof.registry import SUMMARISED, Slice, counted, full, quick
from tests.proof.report import Report
from tests.proof.results import FAILURES, FULL, QUICK, DamagedResults, Result, Results, commit, today
from tests.support.fingerprint import ROOT

GRACE_S = 15.0
"""For a slice that is given up to take down what it has started."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="as in the report; all by default")
    parser.add_argument("--quick", action="store_true", help="a cut of each that ends within minutes")
    parser.add_argument("--report", action="store_true", help="runs nothing, and shows all that is proved")
    options = parser.parse_args()
    slices = quick() if options.quick else full()
    known = {each.family for each in slices}
    if unknown := set(options.families) - known:
        parser.error(f"there is no family {', '.join(sorted(unknown))}; there are: {', '.join(sorted(known))}")
    chosen = [each for each in slices if not options.families or each.family in options.families]
    try:
        results = Results(QUICK if options.quick else FULL)
    except DamagedResults as damaged:
        parser.error(str(damaged))
    if not options.report:
        results.compact(slices)
        if not _run(chosen, results):
            return 130
    report = Report(chosen, results)
    print(f"{commit()}:", *(report.lines() if options.report else report.table()), sep="\n")
    return _verdict(report, was_run=not options.report)


def _verdict(report: Report, *, was_run: bool) -> int:
    """Prints the last word. A report exits with 0 if earlier sources are a part of what is proved; a run does not: it
    was to prove the sources as they are."""
    shortcomings = report.shortcomings()
    print("", report.word(), *shortcomings, sep="\n")
    if any(each.startswith("failed") for each in shortcomings):
        print(f"What a failed slice said is in {FAILURES}.")
    fell_behind = was_run and not shortcomings and not report.is_as_it_is
    if fell_behind:
        print("Sources changed while this ran: run it again to prove them as they are.")
    return 1 if shortcomings or fell_behind else 0


def _run(slices: Sequence[Slice], results: Results) -> bool:
    """Whether it came to its end."""
    pending = results.pending(slices)
    for number, each in enumerate(pending, 1):
        _say(f"[{number} of {len(pending)}] {each.name}")
        try:
            result, said = _prove(each)
        except KeyboardInterrupt:
            _say("stopped; what is done is kept, and the next run resumes behind it")
            return False
        if each.sources != result.sources:
            _say("    does not count: what it rests on was changed while it ran; it is to be run again")
            continue
        results.add(result)
        counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in result.counts.items())
        _say(f"    {result.outcome} in {result.duration_s:.0f} s: {counts or said.strip().rpartition(chr(10))[2]}")
        if result.outcome == "failed":
            _say(f"    see {_keep(FAILURES, each, said)}")
    return True


def _prove(each: Slice) -> tuple[Result, str]:
    """Runs one slice; what became of it, and what it said."""
    began_s, sources = time.monotonic(), each.sources
    with tempfile.TemporaryDirectory(prefix="dledger-proof-") as folder:
        summary = Path(folder) / "summary.json"
        flags = ("--summary", str(summary)) if each.family in SUMMARISED else ()
        code, said = _say_of((*each.arguments, *flags))
        details = json.loads(summary.read_text(encoding="utf-8")) if summary.exists() else {}
    counts = counted(each, said)
    duration_s = round(time.monotonic() - began_s, 1)
    outcome = _outcome(each, code, counts, said)
    return Result(each.name, sources, outcome, counts or {}, duration_s, commit(), today(), details), said


def _say_of(arguments: Sequence[str]) -> tuple[int, str]:
    """The command's exit code, and what it said."""
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # Ctrl-C is for us: we tell it, and see that it ends
    )
    try:
        said, _ = process.communicate()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        try:
            process.communicate(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        raise
    return process.returncode, said


def _outcome(each: Slice, code: int, counts: dict[str, int] | None, said: str) -> str:
    """A command that ends well and has not counted all that it was asked for, or left something out, has proved less
    than it was to."""
    *_, last_line = said.rstrip().splitlines() or [""]
    if code == 0 and (last_line.startswith("skipped:") or (counts or {}).get("skipped")):
        return "skipped"
    return "held" if code == 0 and each.holds(counts or {}) else "failed"


def _keep(folder: Path, each: Slice, said: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (each.name.replace(" ", "_").replace("/", "_") + ".txt")
    path.write_text(said, encoding="utf-8")
    return path


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())

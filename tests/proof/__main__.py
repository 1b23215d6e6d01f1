"""``python -m tests.proof [--quick | --report] [FAMILY …]``: runs what does not hold yet of the sources as they are.

A slice that held is not run again until the sources that it rests on change. What it proved before stays counted.
Ctrl-C costs only the slice under way: the next run resumes behind it. ``History.pending`` has the order. The results
are in ``proofs``, those of ``--quick`` in ``.proof``. The output of a slice that failed is kept in ``.proof``, too.
"""

from __future__ import annotations

import argparse
import json
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from bench.machine import processor
from tests.proof.history import History, changed, commit_word
from tests.proof.registry import SUMMARISED, Slice, counted, full, quick
from tests.proof.report import Report
from tests.proof.results import FAILURES, FULL, QUICK, UNKNOWN, DamagedResults, Result, Results, now
from tests.support import revision
from tests.support.sources import ROOT, tree

GRACE_S = 15.0
"""For a slice that is given up to take down what it has started."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY", help="as in the report; all by default")
    parser.add_argument("--quick", action="store_true", help="a cut of each that ends within minutes")
    parser.add_argument("--report", action="store_true", help="runs nothing, and shows all that is proved")
    options = parser.parse_args()
    commit = revision.commit()
    slices = quick(revision.first_seed(commit)) if options.quick else full()
    known = {each.family for each in slices}
    if unknown := set(options.families) - known:
        parser.error(f"there is no family {', '.join(sorted(unknown))}; there are: {', '.join(sorted(known))}")
    chosen = [each for each in slices if not options.families or each.family in options.families]
    try:
        results = Results(QUICK if options.quick else FULL)
    except DamagedResults as damaged:
        parser.error(str(damaged))
    if options.quick:
        _say(f"seeds from {revision.first_seed(commit)} on, {revision.origin(commit)}")
    if not options.report and not _run(chosen, results):
        return 130
    sources = _sources(chosen)
    report = Report(_history(chosen, sources, results), lambda family, of: _changed(family, of, chosen, sources))
    print(f"{commit or UNKNOWN}:", *(report.lines() if options.report else report.table()), sep="\n")
    verdict = _verdict(report, was_run=not options.report)
    if not options.quick and revision.is_changed(FULL):
        print(f"There are new results in {FULL}.", commit_word(revision.day_of_the_last_commit_of(FULL), str(_today())))
    return verdict


def _sources(slices: Sequence[Slice]) -> dict[str, dict[str, str]]:
    return {each.name: each.sources for each in slices}


def _history(slices: Sequence[Slice], sources: Mapping[str, Mapping[str, str]], results: Results) -> History:
    return History(slices, sources, results.all, _today())


def _today() -> date:
    return date.fromisoformat(now()[:10])


def _changed(
    family: str, result: Result, slices: Sequence[Slice], sources: Mapping[str, Mapping[str, str]]
) -> list[str] | None:
    """Paths that the family rests on and that are not as in the result's commit. None if git does not know it."""
    then = revision.blobs_of(result.commit)
    present = {path: blob for each in slices if each.family == family for path, blob in sources[each.name].items()}
    return None if then is None else changed(then, present, _is_gone)


def _is_gone(path: str) -> bool:
    return not (ROOT / path).exists()


def _verdict(report: Report, *, was_run: bool) -> int:
    """Prints the last word. A report exits with 0 if other trees of late are a part of what is proved; a run does not:
    it was to prove this tree."""
    shortcomings = report.shortcomings()
    print("", report.word(), *shortcomings, sep="\n")
    if any(each.startswith("failed") for each in shortcomings):
        print(f"What a failed slice said is in {FAILURES}.")
    fell_behind = was_run and not shortcomings and not report.is_of_this_tree
    if fell_behind:
        print("Sources changed while this ran: run it again to prove them as they are.")
    return 1 if shortcomings or fell_behind else 0


def _run(slices: Sequence[Slice], results: Results) -> bool:
    """Whether it came to its end."""
    pending = _history(slices, _sources(slices), results).pending()
    for number, each in enumerate(pending, 1):
        _say(f"[{number} of {len(pending)}] {each.name}")
        try:
            result, said = _prove(each)
        except KeyboardInterrupt:
            _say("stopped; what is done is kept, and the next run resumes behind it")
            return False
        if each.tree != result.tree:
            _say("    does not count: what it rests on was changed while it ran; it is to be run again")
            continue
        results.add(result)
        counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in result.counts.items())
        _say(f"    {result.outcome} in {result.duration_s:.0f} s: {counts or said.strip().rpartition(chr(10))[2]}")
        if result.outcome == "failed":
            _say(f"    see {_keep(FAILURES, each, said)}; again: {each.command}")
    return True


def _prove(each: Slice) -> tuple[Result, str]:
    """Runs one slice; what became of it, and what it said."""
    began_s, sources, commit = time.monotonic(), each.sources, revision.commit()
    with tempfile.TemporaryDirectory(prefix="dledger-proof-") as folder:
        summary = Path(folder) / "summary.json"
        flags = ("--summary", str(summary)) if each.family in SUMMARISED else ()
        code, said = _say_of((*each.arguments, *flags))
        details = json.loads(summary.read_text(encoding="utf-8")) if summary.exists() else {}
    counts = counted(each, said)
    result = Result(
        family=each.family,
        slice=each.name,
        tree=tree(sources),
        outcome=_outcome(each, code, counts, said),
        counts=counts or {},
        when=now(),
        duration_s=round(time.monotonic() - began_s, 1),
        commit=commit or UNKNOWN,
        is_dirty=_is_dirty(commit, sources),
        processor=processor(),
        python=platform.python_version(),
        details=details,
    )
    return result, said


def _is_dirty(commit: str | None, sources: Mapping[str, str]) -> bool:
    """Whether the sources are, or may be, others than the commit's."""
    committed = revision.blobs_of(commit) if commit else None
    return committed is None or bool(changed(committed, sources, _is_gone))


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

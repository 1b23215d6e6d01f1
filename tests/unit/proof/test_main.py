"""The command runs what does not hold of the sources as they are, and keeps what became of it."""

from __future__ import annotations

import platform
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.proof.__main__ import _is_dirty, _prove, _run, main
from tests.proof.registry import Slice
from tests.proof.results import Result, Results, line_of
from tests.support import revision
from tests.support.sources import tree
from tests.unit.proof.sample import DAY, HERE, MORE, ROT, SEEDS, SOURCES, elsewhere, result

PROOF = SEEDS._replace(arguments=("some_proof",))


@pytest.fixture(autouse=True)
def sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Slice, "sources", SOURCES)


def write_proof(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    (folder / "some_proof.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def kept(directory: Path, *done: Result) -> Results:
    results = Results(directory)
    for each in done:
        results.add(each)
    return results


@pytest.mark.parametrize(
    ("program", "outcome"),
    [
        ("print('3 passed, 0 failed')", "held"),
        ("print('2 passed, 0 failed')", "failed"),
        ("print('skipped: there is no such file system')", "skipped"),
        ("print('3 passed, 0 failed'); print('skipped: the loop devices are gone')", "skipped"),
        ("print('nothing')", "failed"),
        ("raise SystemExit(1)", "failed"),
    ],
)
def test_a_slice_holds_when_it_ends_well_and_has_counted_what_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, outcome: str
) -> None:
    write_proof(tmp_path, monkeypatch, program)
    proved, _ = _prove(PROOF._replace(asked=3))
    assert proved.outcome == outcome


def test_a_result_names_its_tree_its_commit_its_time_and_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_proof(tmp_path, monkeypatch, "print('3 passed, 0 failed')")
    proved, _ = _prove(PROOF)
    age = datetime.now(UTC) - datetime.fromisoformat(proved.when)
    assert timedelta() <= age < timedelta(minutes=5)
    assert (proved.family, proved.slice, proved.tree) == ("simulation", "some_proof", HERE)
    assert proved.counts == {"passed": 3, "failed": 0}
    assert (proved.commit, proved.is_dirty) == (revision.commit(), True)
    assert proved.python == platform.python_version()
    assert proved.processor


def test_where_git_cannot_say_what_is_checked_out_a_result_is_one_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_proof(tmp_path, monkeypatch, "print('3 passed, 0 failed')")
    monkeypatch.setattr(revision, "commit", lambda: None)
    proved, _ = _prove(PROOF)
    assert (proved.commit, proved.is_dirty, proved.outcome) == ("unknown", True, "held")


def test_sources_are_dirty_where_they_are_not_those_of_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revision, "blobs_of", lambda commit: SOURCES if commit == "abc" else None)
    assert not _is_dirty("abc", SOURCES)
    assert _is_dirty("abc", SOURCES | {"dledger/more.py": "cd" * 20})
    assert _is_dirty("gone", SOURCES)
    assert _is_dirty(None, SOURCES)


@pytest.mark.parametrize("content", ["as they were", "others"])
def test_only_what_was_proved_of_sources_that_stayed_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    """Somebody edits them while a slice runs."""
    edited = tmp_path / "sources"
    edited.write_text("as they were")
    blob = {"as they were": "ab" * 20, "others": "cd" * 20}
    program = f"import pathlib; pathlib.Path({str(edited)!r}).write_text({content!r}); print('1 passed, 0 failed')"
    write_proof(tmp_path, monkeypatch, program)
    monkeypatch.setattr(Slice, "sources", property(lambda _: {"some.py": blob[edited.read_text()]}))
    results = Results(tmp_path / "results")
    assert _run([PROOF], results)
    assert [each.tree for each in results.all] == [tree({"some.py": "ab" * 20})] * (content == "as they were")
    assert ("changed while it ran" in capsys.readouterr().err) == (content == "others")


def test_a_slice_that_fails_says_how_it_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_proof(tmp_path, monkeypatch, "print('0 passed, 1 failed')")
    monkeypatch.setattr("tests.proof.__main__.FAILURES", tmp_path / "failures")
    assert _run([PROOF], Results(tmp_path / "results"))
    assert capsys.readouterr().err.rstrip().endswith("some_proof.txt; again: python -m some_proof")
    assert (tmp_path / "failures" / "some_proof.txt").read_text() == "0 passed, 1 failed\n"


def test_an_interrupted_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    def prove(each: Slice) -> tuple[Result, str]:
        ran.append(each)
        if len(ran) == 2:
            raise KeyboardInterrupt
        return result("held", each, passed=1), ""

    monkeypatch.setattr("tests.proof.__main__._prove", prove)
    slices = [SEEDS, MORE, ROT]
    assert not _run(slices, kept(tmp_path, elsewhere("held", SEEDS)))
    assert _run(slices, Results(tmp_path))
    assert ran == [MORE, ROT, ROT, SEEDS]


def test_the_command_reports_what_was_proved_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    today = datetime.now(UTC).date().isoformat()
    done = elsewhere("held", SEEDS, day=today, commit=revision.commit() or "")
    kept(tmp_path, done)
    monkeypatch.setattr("tests.proof.__main__.FULL", tmp_path)
    monkeypatch.setattr("tests.proof.__main__.full", lambda: [SEEDS])
    monkeypatch.setattr(sys, "argv", ["proof", "--report"])
    assert main() == 0
    said = capsys.readouterr().out.rstrip().splitlines()
    assert said[-1].startswith("PROVED in the last 30 days, 1 of 1 slices on other trees than this")
    assert f"    Changed since {done.origin}, 1 paths: dledger/some.py" in said
    assert [file.read_text() for file in tmp_path.iterdir()] == [line_of(done)]


def test_the_command_says_when_to_commit_new_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def is_changed(path: Path) -> bool:
        return path == tmp_path

    monkeypatch.setattr("tests.proof.__main__.FULL", tmp_path)
    monkeypatch.setattr("tests.proof.__main__.full", lambda: [SEEDS])
    monkeypatch.setattr(revision, "is_changed", is_changed)
    monkeypatch.setattr(revision, "day_of_the_last_commit_of", lambda _: DAY)
    monkeypatch.setattr(sys, "argv", ["proof", "--report"])
    main()
    assert f"There are new results in {tmp_path}. They are not committed yet" in capsys.readouterr().out


def test_the_command_refuses_damaged_results_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "2026-11.jsonl").write_text("{}\n")
    monkeypatch.setattr("tests.proof.__main__.FULL", tmp_path)
    monkeypatch.setattr(sys, "argv", ["proof", "--report"])
    with pytest.raises(SystemExit):
        main()
    assert "2026-11.jsonl is no result of that month: restore the file" in capsys.readouterr().err

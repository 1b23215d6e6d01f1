"""A result says what it is of, and none is taken where a sync costs nothing."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import NoReturn

import pytest

from bench import machine
from bench.work import MeasurementFailed


def test_a_machine_is_told_by_all_that_a_sentence_of_it_names() -> None:
    assert machine.program() in machine.sentence(machine.describe())


def test_a_folder_in_memory_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(machine, "file_system", lambda _: "tmpfs")
    with pytest.raises(MeasurementFailed, match=f"{tmp_path} is a tmpfs"), machine.data_folder():
        pass
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_not_replaced_by_another(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    with pytest.raises(MeasurementFailed, match=f"TMPDIR is {tmp_path}/missing, where nothing can be written"):
        machine.data_folder().__enter__()


def test_two_runs_do_not_measure_each_other(lock: Path) -> None:
    with lock.open("w") as other:
        other.write("4711")
        other.flush()
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(MeasurementFailed, match="another run is under way on this machine: process 4711"):
            machine.measure_alone()
    machine.measure_alone()
    assert lock.read_text() == str(os.getpid())


def test_what_a_run_that_was_killed_left_behind_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / "dledger-bench-turn-killed"
    (left / "n0").mkdir(parents=True)
    (tmp_path / "somebody-else").mkdir()
    machine.measure_alone()
    assert [path.name for path in tmp_path.iterdir()] == ["somebody-else"]


def test_what_another_run_holds_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with machine.data_folder() as data:
        machine.measure_alone.cache_clear()
        monkeypatch.setattr(machine, "LOCK", tmp_path / "another-lock")
        machine.measure_alone()
        assert data.exists()


def test_what_has_no_room_is_refused_before_it_begins() -> None:
    with pytest.raises(MeasurementFailed, match=r"has \d+ GB free, and up to 1000000000 GB are written: ask for less"):
        machine.data_folder(1e9).__enter__()


def fail(data: Path, failure: Exception) -> NoReturn:
    """As a turn does."""
    (data / "n0.log").write_text("no disk")
    raise failure


def test_the_logs_of_a_turn_that_failed_are_where_the_failure_says() -> None:
    with pytest.raises(MeasurementFailed) as failed, machine.data_folder() as data:
        fail(data, MeasurementFailed(f"n0 ended (see {data / 'n0.log'})"))
    assert not data.exists()
    told = str(failed.value).partition("see ")[2].rstrip(")")
    assert Path(told).read_text() == "no disk"


def test_a_bug_says_where_the_logs_are() -> None:
    with pytest.raises(ValueError, match="no number") as failed, machine.data_folder() as data:
        fail(data, ValueError("no number"))
    (note,) = failed.value.__notes__
    assert (Path(note.partition("in ")[2]) / "n0.log").read_text() == "no disk"


def test_a_program_that_is_changed_while_it_is_measured_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "program", lambda: "abc")
    machine.require_same_program()
    monkeypatch.setattr(machine, "program", lambda: "abc+1")
    with pytest.raises(MeasurementFailed, match=r"the sources are abc\+1 now and were abc"):
        machine.require_same_program()


def test_the_innermost_mount_counts() -> None:
    assert machine.file_system(Path("/proc/self")) == "proc"
    assert machine.file_system(Path("/")) != "proc"

"""A result says what it is of, and none is taken where a sync costs nothing."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

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


def test_two_runs_do_not_measure_each_other(lock: Path) -> None:
    with lock.open("w") as other:
        other.write("4711")
        other.flush()
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(MeasurementFailed, match="another run is under way on this machine: process 4711"):
            machine.measure_alone()
    machine.measure_alone()
    assert lock.read_text() == str(os.getpid())


def test_the_innermost_mount_counts() -> None:
    assert machine.file_system(Path("/proc/self")) == "proc"
    assert machine.file_system(Path("/")) != "proc"

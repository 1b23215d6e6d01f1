"""A result says what it is of, and none is taken where a sync costs nothing."""

from __future__ import annotations

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


def test_the_innermost_mount_counts() -> None:
    assert machine.file_system(Path("/proc/self")) == "proc"
    assert machine.file_system(Path("/")) != "proc"

"""What every test of the benchmarks has."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import machine
from bench.peers import java


@pytest.fixture(autouse=True)
def lock(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of its own: other tests, or a run of the benchmarks, are under way on this machine."""
    path = tmp_path_factory.mktemp("lock") / "lock"
    monkeypatch.setattr(machine, "LOCK", path)
    monkeypatch.setattr(machine, "KEPT_LOGS", path.parent / "logs")
    monkeypatch.setattr("tempfile.tempdir", str(path.parent))
    for each in (machine.measure_alone, machine.program_at_first, java.build_java):
        each.cache_clear()
    return path

"""What ``python -m jepsen`` refuses, and how."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dledger.errors import ConfigError
from jepsen.hosts.namespaces import check_root_and_tools


def jepsen(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "jepsen", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_who_is_not_root_is_told_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(ConfigError, match="run it as root"):
        check_root_and_tools()


def test_an_unknown_nemesis_is_named_and_nothing_is_made(tmp_path: Path) -> None:
    done = jepsen("test", "--nemesis", "earthquake", "--store", str(tmp_path / "store"))
    assert done.returncode == 2
    assert "there is no nemesis 'earthquake'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "store").exists()


def test_a_file_that_is_no_history_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("no")
    done = jepsen("check", str(tmp_path / "x.parquet"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "is not a history" in done.stderr

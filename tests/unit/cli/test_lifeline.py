"""A node ends with its owner, and a second owner is turned away."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dledger.cli.lifeline import Lifeline, stop_when_released
from dledger.common.errors import ConfigError

NODE = """
import signal, sys
from pathlib import Path
from dledger.cli.lifeline import stop_when_released
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
stop_when_released(Path(sys.argv[1]))
print("up", flush=True)
signal.pause()
"""
OWNER = """
import signal, sys
from pathlib import Path
from dledger.cli.lifeline import Lifeline
held = Lifeline(Path(sys.argv[1]))
print("held", flush=True)
signal.pause()
"""


def spawn(program: str, path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def test_a_node_is_told_to_stop_when_the_owner_lets_go(tmp_path: Path) -> None:
    lifeline = Lifeline(tmp_path / "lock")
    with spawn(NODE, lifeline.path) as node:
        lifeline.release()
        assert node.wait(10) == 7


def test_a_node_is_told_to_stop_when_the_owner_is_killed(tmp_path: Path) -> None:
    with spawn(OWNER, tmp_path / "lock") as owner, spawn(NODE, tmp_path / "lock") as node:
        owner.send_signal(signal.SIGKILL)
        assert node.wait(10) == 7


def test_a_second_owner_is_turned_away(tmp_path: Path) -> None:
    lifeline = Lifeline(tmp_path / "lock")
    with pytest.raises(ConfigError, match="run by another process"):
        Lifeline(tmp_path / "lock")
    lifeline.release()
    Lifeline(tmp_path / "lock").release()


def test_a_node_without_an_owner_does_not_start(tmp_path: Path) -> None:
    Lifeline(tmp_path / "lock").release()
    with pytest.raises(ConfigError, match="no process holds"):
        stop_when_released(tmp_path / "lock")
    with pytest.raises(ConfigError, match="cannot be opened"):
        stop_when_released(tmp_path / "none")

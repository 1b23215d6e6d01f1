"""What ``python -m jepsen`` refuses, and how."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dledger.cli.runtime import exit_code_of
from dledger.common.errors import ConfigError
from jepsen.__main__ import main, new_directory, pace
from jepsen.hosts.namespaces import TOOLS, check_root_and_tools
from jepsen.nemesis.catalogue import tools
from jepsen.plan import Plan
from jepsen.recorder import Recorder


class Ended(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


Jepsen = Callable[..., Ended]


@pytest.fixture
def jepsen(capsys: pytest.CaptureFixture[str]) -> Jepsen:
    """``jepsen("test", "--nodes", "3")``, as ``python -m jepsen`` runs it, in this process."""

    def run(*arguments: str) -> Ended:
        code = exit_code_of(lambda: main(list(arguments), standalone_mode=False))
        return Ended(code, *capsys.readouterr())

    return run


def test_who_is_not_root_is_told_so_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(ConfigError, match="run it as root"):
        check_root_and_tools()


def test_an_unknown_nemesis_is_named_and_nothing_is_made(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "jepsen", "test", "--nemesis", "earthquake", "--store", str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no nemesis 'earthquake'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--time-limit", "0"], "--time-limit"),
        (["--time-limit", "nan"], "is no time"),
        (["--time-limit", "inf"], "is no time"),
        (["--batch", "0"], "--batch"),
        (["--record-bytes", "2000000"], "--record-bytes"),
        (["--batch", "5000", "--record-bytes", "1000"], "an append may have 4194304 bytes"),
        (["--rate", "-1"], "--rate"),
        (["--fault-seconds", "0"], "--fault-seconds"),
        (["--calm-seconds", "-1"], "--calm-seconds"),
        (["--nemesis", "loss", "--time-limit", "4"], "take a longer --time-limit"),
        (["--nemesis", "loss", "--time-limit", "10", "--fault-seconds", "30"], "no fault of 30 s fits into 10 s"),
        (["--hosts", "ssh:a,b", "--nodes", "3"], "a,b are not 3 machines"),
        (["--hosts", "ssh:a,b,c", "--workload", "membership"], "there are more hosts to be had"),
        (["--hosts", "ssh:a,b,c", "--nemesis", "bit-rot-running"], "its files and processes are this machine's"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_line_and_nothing_is_made(
    jepsen: Jepsen, tmp_path: Path, arguments: list[str], why: str
) -> None:
    ended = jepsen("test", *arguments, "--store", str(tmp_path / "store"))
    assert (ended.code, ended.out) == (2, "")
    assert why in ended.err
    assert ended.err.count("\n") == 1
    assert not (tmp_path / "store").exists()


def test_a_port_that_is_none_is_refused(jepsen: Jepsen) -> None:
    assert jepsen("serve", "--port", "99999").code == 2


@pytest.mark.parametrize(
    "nemesis", ["delay", "slow-disk", "fsync-errors", "clock-drift", "power-cut-one", "every", "all"]
)
def test_what_a_nemesis_works_with_is_missed_before_the_run(nemesis: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda tool: f"/usr/sbin/{tool}" if tool in TOOLS else None)
    monkeypatch.setattr(Path, "exists", lambda _: False)
    with pytest.raises(ConfigError, match="is missing: install the package"):
        check_root_and_tools(tools([nemesis]))


@pytest.mark.parametrize(
    ("on_s", "off_s", "time_limit_s", "paced"),
    [
        pytest.param(None, None, 600, (30, 30), id="a long run"),
        pytest.param(None, None, 30, (5, 5), id="a short run divides its time"),
        pytest.param(10, 10, 30, (10, 10), id="what was asked for is done"),
        pytest.param(8, None, 30, (8, 5), id="the rest is divided"),
        pytest.param(8, None, 600, (8, 30), id="the rest is as always"),
    ],
)
def test_how_long_faults_last(
    on_s: float | None, off_s: float | None, time_limit_s: float, paced: tuple[float, float]
) -> None:
    assert pace(on_s, off_s, time_limit_s) == paced


def test_a_suite_goes_on_when_a_run_breaks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def go(plan: Plan, _: Path) -> dict[str, Any]:
        if plan.nemeses == ("loss",):
            raise RuntimeError("no")
        return {"valid": True}

    monkeypatch.setattr("jepsen.__main__.check_control", lambda _: None)
    monkeypatch.setattr("jepsen.__main__._go", go)
    assert main(["suite", "--only", "loss,bridge"], standalone_mode=False) == 1
    first, second, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["reasons"] == ["the run broke: RuntimeError: no"]
    assert second == {"nemesis": "bridge", "valid": True}
    assert last == {"valid": False, "nemeses": 2, "not_valid": ["loss"]}


def test_every_workload_of_the_store_has_its_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plans: list[Plan] = []

    def go(plan: Plan, _: Path) -> dict[str, Any]:
        plans.append(plan)
        return {"valid": plan.workload != "lease"}

    monkeypatch.setattr("jepsen.__main__.check_control", lambda _: None)
    monkeypatch.setattr("jepsen.__main__._go", go)
    assert main(["store", "--nemesis", "kill-leader,loss"], standalone_mode=False) == 1
    *_, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert last == {"valid": False, "workloads": 4, "not_valid": ["lease"]}
    assert [plan.workload for plan in plans] == ["kv", "watch", "lease", "lock"]
    assert {plan.nemeses for plan in plans} == {("kill-leader", "loss")}
    assert {plan.time_limit_s for plan in plans} == {30.0}


def test_the_exit_code_is_the_verdict_also_when_nobody_reads_it(tmp_path: Path) -> None:
    with Recorder(tmp_path):
        pass
    pipe, ours = os.pipe()
    os.close(pipe)
    command = [sys.executable, "-m", "jepsen", "check", str(tmp_path)]
    done = subprocess.run(command, stdout=ours, stderr=subprocess.PIPE, check=False)
    os.close(ours)
    assert (done.returncode, done.stderr) == (1, b"")


def test_runs_that_begin_in_the_same_second_have_directories_of_their_own(tmp_path: Path) -> None:
    assert [new_directory(tmp_path / "store", "run").name for _ in range(3)] == ["run", "run-2", "run-3"]


def test_a_file_that_is_no_history_is_refused(jepsen: Jepsen, tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_text("no")
    ended = jepsen("check", str(tmp_path / "x.parquet"))
    assert (ended.code, ended.out) == (2, "")
    assert "is not a history" in ended.err

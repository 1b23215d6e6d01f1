"""The commands of bench/README.md are understood, and what cannot be measured is said in a line."""

from __future__ import annotations

import re
import shlex
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import __main__ as commands
from bench import compare as comparing
from bench import plots, results
from bench.compare import Plan, Run
from bench.results import RESULTS, UNPUBLISHED, save
from bench.work import MeasurementFailed

ROOT = Path(__file__).parents[3]
README = (ROOT / "bench" / "README.md").read_text()
FLAGS = re.findall(r'BENCH_FLAGS="([^"]*)"', README)
MACHINE = dict.fromkeys(("cores", "processor", "kernel", "file_system", "python", "program", "started"), "x")


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """What was asked of ``compare``, which measures nothing."""
    asked: list[Plan] = []

    def fake(plan: Plan, **_: bool) -> Run:
        asked.append(plan)
        return Run(plan, {**MACHINE, "load_before": 0.0})

    monkeypatch.setattr(comparing, "compare", fake)
    monkeypatch.setattr(plots, "plot_comparison", lambda *_: None)
    return asked


@pytest.mark.parametrize("flags", FLAGS)
def test_the_flags_of_the_readme_are_understood(flags: str, plans: list[Plan], tmp_path: Path) -> None:
    asked = ["compare", *shlex.split(flags), "--results", str(tmp_path)]
    assert CliRunner().invoke(commands.bench, asked).exit_code == 0
    assert plans


@pytest.mark.parametrize("peers", ["", ","])
def test_a_comparison_with_nobody_is_refused(peers: str, plans: list[Plan]) -> None:
    done = CliRunner().invoke(commands.bench, ["compare", "--peers", peers])
    assert done.exit_code == 2
    assert "names nobody" in done.output
    assert not plans


def test_make_hands_its_flags_to_compare() -> None:
    assert FLAGS
    assert "python -m bench compare $(BENCH_FLAGS)" in (ROOT / "Makefile").read_text()


@pytest.mark.usefixtures("plans")
def test_a_short_run_does_not_replace_what_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[Path] = []
    monkeypatch.setattr(commands, "save", lambda *_, **where: folders.append(where["folder"]))
    CliRunner().invoke(commands.bench, ["compare", "--quick"])
    assert folders == [UNPUBLISHED]


@pytest.mark.parametrize(
    ("asked", "folder"),
    [
        (["idle"], RESULTS),
        (["idle", "--duration", "1"], UNPUBLISHED),
        (["--publish", "idle", "--duration", "1"], RESULTS),
    ],
)
def test_a_scenario_with_flags_replaces_what_is_published_when_it_is_told_to(
    monkeypatch: pytest.MonkeyPatch, asked: list[str], folder: Path
) -> None:
    written: list[Path] = []
    monkeypatch.setattr(results, "replace", lambda path, _text: written.append(path))
    monkeypatch.setattr(commands.bench.commands["idle"], "callback", lambda **_: save("idle", {}, [{"cores": 1}]))
    assert CliRunner().invoke(commands.bench, asked, catch_exceptions=False).exit_code == 0
    assert written == [folder / "idle.json", folder / "idle.md"]


def test_what_was_measured_of_two_programs_is_not_published(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def changed() -> None:
        raise MeasurementFailed("the sources are another now")

    written: list[Path] = []
    monkeypatch.setattr(results, "replace", lambda path, _text: written.append(path.parent))
    monkeypatch.setattr(results, "require_same_program", changed)
    save("compare", {}, [{"cores": 1}], folder=RESULTS)
    assert set(written) == {UNPUBLISHED}
    assert "of more than one program: the sources are another now" in capsys.readouterr().err


def test_what_is_to_be_published_is_though_it_was_short(plans: list[Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    folders: list[Path] = []
    monkeypatch.setattr(commands, "save", lambda *_, **where: folders.append(where["folder"]))
    CliRunner().invoke(commands.bench, ["--publish", "compare", "--quick"])
    assert folders == [RESULTS]
    assert plans


@pytest.mark.parametrize("duration", ["nan", "0.1", "inf"])
def test_a_duration_that_cannot_be_is_refused(plans: list[Plan], duration: str) -> None:
    assert CliRunner().invoke(commands.bench, ["compare", "--duration", duration]).exit_code == 2
    assert not plans


def test_an_unknown_peer_is_refused_by_name(plans: list[Plan]) -> None:
    said = CliRunner().invoke(commands.bench, ["compare", "--peers", "etcd,zookeeper"])
    assert said.exit_code == 2
    assert "there is no peer 'zookeeper'" in said.output
    assert not plans


@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_hangup_ends_a_run_but_under_nohup(monkeypatch: pytest.MonkeyPatch, before: signal.Handlers) -> None:
    monkeypatch.setattr(commands, "bench", lambda: None)
    earlier = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    signal.signal(signal.SIGHUP, before)
    try:
        commands.main()
        if before is signal.SIG_IGN:
            signal.raise_signal(signal.SIGHUP)
        else:
            with pytest.raises(SystemExit):
                signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN, "what is begun is taken down in peace"
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


def test_what_cannot_be_measured_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise MeasurementFailed("/tmp is a tmpfs")

    monkeypatch.setattr(commands, "bench", fail)
    assert commands.main() == 1
    assert capsys.readouterr().err == "Error: /tmp is a tmpfs\n"

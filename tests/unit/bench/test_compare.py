"""A run that was interrupted goes on, on the same machine with the same program; nothing measured is lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, count, pairwise
from pathlib import Path
from typing import Any

import pytest

from bench import compare as comparing
from bench.compare import Plan, Run
from bench.limits import LIMITS_TURN
from bench.peers import PEERS
from bench.work import MeasurementFailed, Outcome, PeerMissing

OUTCOME = Outcome(100, 0, 1.0, 0.5, 0.9, 0.1, 0.1)
PLAN = Plan(3, 1.0, ("one", "two"))


class FakePeer:
    """Measures one work a turn; ``does`` may raise."""

    title = client = promise = bulk_note = "fake"
    syncs = True
    version = "1"

    def __init__(self, name: str, done: Counter[str]) -> None:
        self.name, self.done = name, done

    def install(self) -> str:
        return self.version

    def largest_server_mb(self) -> float:
        return 100.0

    def stop(self) -> None:
        pass


class Bench:
    """``compare`` with fake peers; ``failing`` is the system whose next turn raises this."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.done: Counter[str] = Counter()
        self.order: list[str] = []
        self.failing: dict[str, BaseException | Outcome] = {}
        self.machine: dict[str, Any] = {"cores": 2, "program": "abc"}
        for name in PLAN.peers:
            monkeypatch.setitem(PEERS, name, lambda name=name: FakePeer(name, self.done))
        monkeypatch.setattr(comparing, "RUNS", folder / "runs")
        monkeypatch.setattr(comparing, "describe", lambda: dict(self.machine))
        monkeypatch.setattr(comparing, "data_folder", self._folder)
        monkeypatch.setattr(comparing, "_limits", lambda *_: self._measure(LIMITS_TURN))
        monkeypatch.setattr(comparing, "_works", lambda peer, *_: self._measure(peer.name))

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        yield Path()

    def _measure(self, name: str) -> Iterator[Any]:
        def measure() -> Outcome:
            instead = self.failing.pop(name, OUTCOME)
            if isinstance(instead, BaseException):
                raise instead
            self.done[name] += 1
            self.order.append(name)
            return instead

        yield "work", measure

    def run(self) -> Run:
        return comparing.compare(PLAN, fresh=False)


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    return Bench(monkeypatch, tmp_path)


def interrupt(bench: Bench) -> None:
    bench.failing["two"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        bench.run()


def test_each_system_has_its_turn_in_every_round(bench: Bench) -> None:
    run = bench.run()
    assert bench.done == {LIMITS_TURN: 3, "one": 3, "two": 3}
    assert len(run.samples) == 9


def test_no_system_follows_the_same_one_in_every_round() -> None:
    turns = [LIMITS_TURN, *PEERS]
    plan = Plan(3, 1.0, tuple(PEERS))
    one_behind_another = list(chain.from_iterable(plan.order(number, turns) for number in range(plan.rounds)))
    for name in turns:
        assert len({before for before, at in pairwise(one_behind_another) if at == name}) > 1


def test_an_interrupted_run_goes_on_where_it_was(bench: Bench) -> None:
    interrupt(bench)
    bench.run()
    assert bench.done == {LIMITS_TURN: 3, "one": 3, "two": 3}


def test_a_line_that_was_being_written_is_measured_again(bench: Bench) -> None:
    interrupt(bench)
    kept = PLAN.file.read_text()
    PLAN.file.write_text(kept[:-10])
    assert len(bench.run().samples) == 9


@pytest.mark.parametrize("text", ["", '{"machine": '])
def test_a_run_of_which_nothing_was_kept_begins_anew(bench: Bench, text: str) -> None:
    PLAN.file.parent.mkdir(parents=True)
    PLAN.file.write_text(text)
    assert len(bench.run().samples) == 9


@pytest.mark.parametrize("key", ["cores", "program"])
def test_a_run_of_another_machine_or_program_is_given_up(bench: Bench, key: str) -> None:
    interrupt(bench)
    bench.machine[key] = "another"
    bench.run()
    assert bench.done["one"] == 4


def test_a_run_of_another_version_of_a_peer_is_given_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(bench)
    monkeypatch.setattr(FakePeer, "version", "2")
    bench.run()
    assert bench.done["one"] == 4


@pytest.mark.parametrize("failure", [MeasurementFailed("no leader"), ValueError("no number")])
def test_a_system_that_fails_does_not_cost_the_others(bench: Bench, failure: Exception) -> None:
    bench.failing["one"] = failure
    run = bench.run()
    assert bench.done == {LIMITS_TURN: 3, "one": 2, "two": 3}
    assert str(failure.args[0]) in run.failures[0]["failure"]


def test_a_failed_turn_is_done_again_by_the_next_run(bench: Bench) -> None:
    bench.failing["one"] = MeasurementFailed("no leader")
    bench.run()
    assert not bench.run().failures
    assert bench.done == {LIMITS_TURN: 3, "one": 3, "two": 3}


def test_a_turn_that_was_done_again_counts_however_often_the_run_is_resumed(bench: Bench) -> None:
    bench.failing["one"] = MeasurementFailed("no leader")
    for _ in range(3):
        run = bench.run()
    assert not run.failures
    assert bench.done == {LIMITS_TURN: 3, "one": 3, "two": 3}


def test_a_turn_with_errors_is_done_again_by_the_next_run(bench: Bench) -> None:
    bench.failing["one"] = replace(OUTCOME, errors=1)
    assert bench.run().failures
    assert not bench.run().failures
    assert bench.done == {LIMITS_TURN: 3, "one": 4, "two": 3}


def test_what_was_missing_is_measured_when_the_run_goes_on_and_it_is_there(bench: Bench) -> None:
    bench.failing["one"] = PeerMissing("h2load is not installed")
    interrupt(bench)
    run = bench.run()
    assert not run.missing
    assert bench.done == {LIMITS_TURN: 3, "one": 3, "two": 3}


def test_what_is_missing_is_told(bench: Bench) -> None:
    bench.failing["one"] = PeerMissing("h2load is not installed")
    assert bench.run().missing == {"work": "h2load is not installed"}


def test_a_run_ends_where_its_program_is_changed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = count()

    def changed() -> None:
        if next(asked) == 4:
            raise MeasurementFailed("the sources are another now")

    monkeypatch.setattr(comparing, "require_same_program", changed)
    with pytest.raises(MeasurementFailed, match="another now"):
        bench.run()
    assert bench.done.total() == 4


def test_samples_are_kept_until_the_results_are_safe(bench: Bench) -> None:
    bench.run()
    assert PLAN.file.exists()
    comparing.finished(PLAN)
    assert not PLAN.file.exists()


def test_only_a_whole_run_is_published() -> None:
    every = tuple(PEERS)
    assert Plan(3, 3.0, every).is_whole
    assert not Plan(1, 3.0, every).is_whole
    assert not Plan(3, 1.5, every).is_whole
    assert not Plan(3, 3.0, every[:2]).is_whole
    assert Run(Plan(3, 3.0, every), {}).is_whole
    assert not Run(Plan(3, 3.0, every), {}, missing={"etcd": "not installed"}).is_whole
    assert not Run(Plan(3, 3.0, every), {}, samples=[{"round": 0, "system": "etcd", "failure": "no leader"}]).is_whole

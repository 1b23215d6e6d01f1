"""A load generator is believed while it answers in time and every server lives."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench import driver
from bench.driver import MOST_WINDOWS, WINDOW_S, Driver
from bench.processes import Child, end_all
from bench.work import MeasurementFailed, Outcome, Work

WORK = Work("8 in flight", 8)
ANSWERS = """
import json, sys
for line in sys.stdin:
    print(json.dumps({"event": "measuring"}), flush=True)
    said = {"records": RECORDS, "errors": 3, "duration_s": 2.0, "p50_ms": 1.0, "p99_ms": 2.0}
    print(json.dumps({"event": "measured", **said}), flush=True)
"""
FALLS_SILENT = """
import sys
for line in sys.stdin:
    print('{"event": "measuring"}', flush=True)
"""
LIVES = "input()"

Start = Callable[[str, str], Child]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    children: list[Child] = []

    def begin(name: str, program: str) -> Child:
        children.append(Child([sys.executable, "-c", program], tmp_path / f"{name}.log", talks=True))
        return children[-1]

    yield begin
    end_all(children)


def measure(loaded: Driver) -> Outcome:
    return loaded.measure(WORK, warmup_s=0, duration_s=0.1)


def test_an_outcome_is_what_the_generator_said(start: Start) -> None:
    outcome = measure(Driver(start("client", ANSWERS.replace("RECORDS", "100")), [start("n0", LIVES)]))
    assert (outcome.records, outcome.errors, outcome.records_per_s) == (100, 3, 50.0)


def test_without_one_success_nothing_is_measured(start: Start) -> None:
    with pytest.raises(MeasurementFailed, match="no append succeeded, 3 failed"):
        measure(Driver(start("client", ANSWERS.replace("RECORDS", "0")), []))


def test_a_generator_that_falls_silent_is_given_up(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "GRACE_S", 2.0)
    with pytest.raises(MeasurementFailed, match="client did not answer"):
        measure(Driver(start("client", FALLS_SILENT), [start("n0", LIVES)]))


@pytest.mark.parametrize("program", [ANSWERS.replace("RECORDS", "100"), FALLS_SILENT])
def test_without_one_of_its_servers_nothing_is_measured(
    start: Start, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(driver, "GRACE_S", 2.0)
    servers = [start("n0", LIVES), start("n1", "import sys; sys.exit('no disk')")]
    servers[1].process.wait()
    with pytest.raises(MeasurementFailed, match="n1 ended: no disk"):
        measure(Driver(start("client", program), servers))


class Scripted(Driver):
    """Its windows give the rates that it is handed, then the last one."""

    def __init__(self, *rates: float) -> None:
        self.rates = list(rates)
        self.windows = 0

    def measure(self, work: Work, *, warmup_s: float, duration_s: float) -> Outcome:
        assert (work, warmup_s, duration_s) == (WORK, 0, WINDOW_S)
        rate = self.rates[min(self.windows, len(self.rates) - 1)]
        self.windows += 1
        return Outcome(round(rate * duration_s), 0, duration_s, 1.0, 2.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("rates", "windows"),
    [
        ([1000], 2),
        ([100, 400, 900, 1000, 1040], 5),
        ([1000, 900, 870], 3),
    ],
)
def test_warming_up_ends_with_two_windows_alike(rates: list[float], windows: int) -> None:
    warmed = Scripted(*rates)
    assert warmed.warm_up(WORK)
    assert warmed.windows == windows


def test_warming_up_ends_though_no_windows_are_alike() -> None:
    warmed = Scripted(*(100 * 1.1**number for number in range(MOST_WINDOWS)))
    assert not warmed.warm_up(WORK)
    assert warmed.windows == MOST_WINDOWS

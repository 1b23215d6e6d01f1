"""The line that says what a command waits for: when it is shown, and when it goes."""

from __future__ import annotations

import pytest

from dledger.cli import waiting
from dledger.cli.waiting import Waiting


class Clock:
    """Stands in for the module ``time``."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(waiting, "time", clock)
    return clock


def test_a_wait_is_shown_once_it_has_lasted(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Waiting(patience_s=1.0) as shown:
        shown.tell("an election")
        clock.now_s += 0.9
        shown.tell("an election")
        assert capsys.readouterr().err == ""
        clock.now_s += 0.1
        shown.tell("an\nelection")
        clock.now_s += 5
        shown.tell("an election")
    assert capsys.readouterr().err == "waiting: an election\n"


def test_a_wait_that_is_over_counts_for_no_other(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Waiting(patience_s=1.0) as shown:
        clock.now_s += 2
        shown.tell("an election")
        shown.restart()
        clock.now_s += 0.9
        shown.tell("an election")
        assert capsys.readouterr().err == "waiting: an election\n"
        clock.now_s += 0.1
        shown.tell("an election")
    assert capsys.readouterr().err == "waiting: an election\n"


def test_on_a_terminal_the_line_is_written_over_and_taken_away(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with Waiting() as shown:
        shown.tell("an election")
        shown.tell("a handover")
        assert capsys.readouterr().err == "\r\x1b[2Kwaiting: an election\r\x1b[2Kwaiting: a handover"
        shown.restart()
        assert capsys.readouterr().err == "\r\x1b[2K"
    assert capsys.readouterr().err == ""

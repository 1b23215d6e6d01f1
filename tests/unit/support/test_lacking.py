"""A test that cannot run here is skipped on a developer's machine, and fails in the gate."""

from __future__ import annotations

import pytest

from tests.support.lacking import cannot, missing_tools


def test_a_test_that_cannot_run_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_SKIPS", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no strace"):
        cannot("no strace")


def test_in_the_gate_a_test_that_cannot_run_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_SKIPS", "1")
    with pytest.raises(pytest.fail.Exception, match="no strace"):
        cannot("no strace")


def test_nothing_is_said_of_tools_that_are_there() -> None:
    assert not missing_tools({"sh": "dash"})


def test_missing_tools_are_named_with_their_packages_each_once() -> None:
    said = missing_tools({"no-such-d": "engine", "sh": "dash", "no-such": "engine", "no-such-top": "other"})
    assert said == "no-such-d, no-such, no-such-top cannot be found: apt install engine other"

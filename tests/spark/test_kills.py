"""Exactly once through kill -9 of driver, JVM and leader; ``make spark-kills`` does it as often as you like."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.kills import play


@pytest.mark.timeout(2_400)
def test_what_is_killed_in_the_middle_loses_and_doubles_nothing(tmp_path: Path) -> None:
    found = play(tmp_path, kills=2, seed=3)
    assert (found["missing"], found["doubled"], found["unexpected"]) == (0, 0, 0)

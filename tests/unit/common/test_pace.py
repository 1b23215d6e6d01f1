"""So much in so long, however it is cut."""

from __future__ import annotations

import pytest

from dledger.common.pace import SLACK_S, Pace


@pytest.mark.parametrize("size_bytes", [1, 100, 700])
def test_a_rate_is_kept_whatever_the_pieces(size_bytes: int) -> None:
    pace, now_s, done = Pace(1000), 100.0, 0
    while now_s < 110:
        done += size_bytes
        now_s += pace.pause_s(size_bytes, now_s)
    assert done == pytest.approx(10_000, rel=0.1)


def test_small_delays_are_made_up_for() -> None:
    pace = Pace(1000)
    pace.pause_s(10, 100.0)
    assert pace.pause_s(10, 100.0 + SLACK_S / 2) == 0


def test_an_hour_of_rest_saves_nothing_up() -> None:
    pace = Pace(1000)
    pace.pause_s(10, 100.0)
    assert pace.pause_s(1000, 3700.0) == pytest.approx(1 - SLACK_S)

"""Whether others go on is judged by what they hold, look by look."""

from __future__ import annotations

from dledger.common.types import Position
from dledger.raft.standstill import OthersProgress

STANDSTILL_MS = 300


def looked(others: OthersProgress, *looks: tuple[float, int, int]) -> OthersProgress:
    """At so many milliseconds: what they held, and where the log ended."""
    for now_ms, held, last in looks:
        others.look(Position(held), Position(last), now_ms)
    return others


def others(*looks: tuple[float, int, int]) -> OthersProgress:
    return looked(OthersProgress(STANDSTILL_MS), *looks)


def test_nobody_goes_on_before_anything_was_seen() -> None:
    assert others().lasts_ms(1_000) == 0


def test_who_holds_more_each_time_goes_on_since_the_first() -> None:
    assert others((100, 1, 9), (200, 2, 9), (300, 3, 9)).lasts_ms(350) == 250


def test_who_lacks_nothing_goes_on() -> None:
    assert others((100, 9, 9), (200, 9, 9), (900, 9, 9)).lasts_ms(950) == 50
    assert others((100, 9, 9), (400, 9, 9), (700, 9, 9)).lasts_ms(750) == 650


def test_who_lacks_something_and_holds_no_more_stands_still_after_a_while() -> None:
    stopped = others((100, 1, 9), (200, 2, 9), (300, 2, 9), (400, 2, 9))
    assert stopped.lasts_ms(200 + STANDSTILL_MS) == 100 + STANDSTILL_MS
    assert stopped.lasts_ms(201 + STANDSTILL_MS) == 0


def test_behind_a_standstill_it_counts_anew() -> None:
    assert others((100, 1, 9), (200, 2, 9), (600, 3, 9), (700, 4, 9)).lasts_ms(750) == 150


def test_what_was_not_looked_at_for_long_is_not_known_to_go_on() -> None:
    assert others((100, 9, 9), (200, 9, 9)).lasts_ms(1_000) == 0

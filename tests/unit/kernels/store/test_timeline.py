"""The total history: merged of all nodes' watches, held against the writes."""

from __future__ import annotations

from random import Random

import pytest

from dledger.kernels.history import FAIL, INFO, OK
from dledger.kernels.store.register import Pair
from dledger.kernels.store.timeline import Change, Seen, Timeline, Write, check_causes, timeline_of
from tests.unit.kernels.store.events import FIRST, changes_of, seen_of


def test_watches_that_were_cut_off_at_several_places_are_one_history() -> None:
    changes = changes_of(Random(3), 12)
    seen = seen_of(changes)
    cut = [each for each in seen if each.change.revision < 7], [each for each in seen if each.change.revision > 4]
    merged, findings = timeline_of(cut, FIRST, changes[-1].revision)
    assert findings.valid
    assert list(merged.changes) == changes
    assert {(each.change.revision, each.change.key): each.before for each in seen} == merged.befores
    assert [each.revision for each in merged.between(4, 5)] == [
        each.revision for each in changes if 4 <= each.revision <= 5
    ]


def test_a_revision_that_nobody_told_of_is_missing() -> None:
    seen = [each for each in seen_of(changes_of(Random(3), 12)) if each.change.revision != 7]
    _, findings = timeline_of([seen], FIRST, 13)
    assert findings.violations == {"missing_revisions": 1, "differing_events": 0}


def test_nodes_that_tell_different_histories_are_found() -> None:
    one = [Seen(Change(2, "a", Pair("v", 2, 2, 1)))]
    other = [Seen(Change(2, "a", Pair("w", 2, 2, 1)))]
    _, findings = timeline_of([one, other, one], FIRST, 2)
    assert findings.violations == {"missing_revisions": 0, "differing_events": 1}


CHANGES = [
    Change(2, "kv/a", Pair("1", 2, 2, 1)),
    Change(3, "kv/a", Pair("2", 2, 3, 2)),
    Change(3, "kv/b", Pair("3", 3, 3, 1)),
    Change(4, "/system", Pair("?", 4, 4, 1)),
    Change(5, "kv/a", None),
]
FIRST_WRITE = Write(1, OK, 2, (("kv/a", "1"),))
BOTH = Write(2, OK, 3, (("kv/a", "2"), ("kv/b", "3")))
DELETE = Write(3, OK, 5, (("kv/a", None),))
NOTHING = Write(4, OK, 0, (("kv/c", None),))
LOST = Write(5, INFO, 0, (("kv/a", "4"),))


def causes(changes: list[Change], *writes: Write) -> dict[str, int]:
    timeline = Timeline(2, 9, changes)
    found = check_causes(timeline, writes, ("kv/",)).violations
    return {name: number for name, number in found.items() if number}


def test_events_and_their_writes_agree() -> None:
    assert not causes(CHANGES, FIRST_WRITE, BOTH, DELETE, NOTHING, LOST)


@pytest.mark.parametrize("outcome", [OK, INFO])
def test_events_may_be_of_writes_of_unknown_outcome(outcome: str) -> None:
    writes = [Write(each.id, outcome, each.revision, each.changes) for each in (FIRST_WRITE, BOTH, DELETE)]
    assert not causes(CHANGES, *writes)


@pytest.mark.parametrize(
    ("changes", "writes", "violations"),
    [
        pytest.param(CHANGES[1:], [FIRST_WRITE, BOTH, DELETE], {"lost_events": 1}, id="an answered write is missing"),
        pytest.param(
            [*CHANGES[:2], *CHANGES[3:]], [FIRST_WRITE, BOTH, DELETE], {"lost_events": 1}, id="half of a transaction"
        ),
        pytest.param(CHANGES, [BOTH, DELETE], {"uncaused_events": 1}, id="an event that nobody wrote"),
        pytest.param(CHANGES, [FIRST_WRITE, BOTH], {"uncaused_events": 1}, id="a delete of nobody"),
        pytest.param(
            CHANGES,
            [Write(1, FAIL, 0, FIRST_WRITE.changes), BOTH, DELETE],
            {"failed_events": 1},
            id="of a failed write",
        ),
        pytest.param(
            [*CHANGES, Change(6, "kv/a", Pair("1", 6, 6, 1))],
            [FIRST_WRITE, BOTH, DELETE],
            {"doubled_events": 1},
            id="a write twice",
        ),
        pytest.param(
            [*CHANGES, Change(6, "kv/a", Pair("1", 6, 6, 1))],
            [Write(1, INFO, 0, FIRST_WRITE.changes), BOTH, DELETE],
            {"doubled_events": 1},
            id="a write of unknown outcome twice",
        ),
    ],
)
def test_events_and_writes_that_do_not_agree_are_found(
    changes: list[Change], writes: list[Write], violations: dict[str, int]
) -> None:
    assert causes(changes, *writes) == violations


def test_a_write_behind_the_end_of_the_history_is_not_lost() -> None:
    assert not causes(CHANGES, FIRST_WRITE, BOTH, DELETE, Write(6, OK, 10, (("kv/a", "9"),)))

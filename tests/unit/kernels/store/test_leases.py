"""Leases: a server that keeps its word is found right, by whatever clients can see of it; each breach is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.kernels.history import FAIL, INFO
from dledger.kernels.store.leases import (
    SECOND_NS,
    Bounds,
    Disturbance,
    Kind,
    LeaseCheck,
    LeaseOperation,
    check_ends,
)
from dledger.kernels.store.register import FOREVER, Pair
from dledger.kernels.store.timeline import Change, Timeline

LEASE = 7
TTL_S = 3
LATE_S = 2.0


def op(number: int, kind: Kind, at_s: tuple[float, float], ttl_s: int = 0, **rest: object) -> LeaseOperation:
    begin, end = (int(each * SECOND_NS) for each in at_s)
    return LeaseOperation(number, kind, LEASE, begin, end, ttl_s=ttl_s, **rest)  # type: ignore[arg-type]


def grant(at_s: tuple[float, float], ttl_s: int = TTL_S) -> LeaseOperation:
    return op(1, Kind.GRANT, at_s, ttl_s, asked_ttl_s=TTL_S)


def kept(at_s: tuple[float, float], ttl_s: int = TTL_S) -> LeaseOperation:
    return op(2, Kind.KEEP_ALIVE, at_s, ttl_s)


def look(at_s: tuple[float, float], *, there: bool) -> LeaseOperation:
    return op(3, Kind.LOOK, at_s, is_there=there)


def revoke(at_s: tuple[float, float]) -> LeaseOperation:
    return op(4, Kind.REVOKE, at_s)


def broken(*operations: LeaseOperation, disturbances: Sequence[Disturbance] = (), rate: float = 1.0) -> dict[str, int]:
    found = LeaseCheck(operations, disturbances, Bounds(LATE_S, rate)).findings.violations
    return {name: number for name, number in found.items() if number}


RIGHT = (
    grant((0, 1)),
    look((1.5, 1.6), there=True),
    kept((2, 2.5)),
    look((4.9, 5.1), there=True),
    look((5.2, 5.3), there=False),
    kept((5.4, 5.5), ttl_s=0),
)


def test_a_right_history_is_valid_and_counted() -> None:
    assert not broken(*RIGHT)
    counts = LeaseCheck(RIGHT).findings.counts
    assert counts == {"leases": 1, "keepalives": 1, "expired": 1, "unjudged": 0, "latest_ms": 0}


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1 << 32))
def test_a_server_that_keeps_its_word_is_right_for_all_clients(seed: int) -> None:
    random = Random(seed)
    operations: list[LeaseOperation] = []
    due_s, gone_s = 0.0, FOREVER / SECOND_NS
    at_s = 0.0
    while at_s < 20:
        invoked_s, done_s = at_s, at_s + random.random() * 0.3
        completed_s = done_s + random.random() * 0.3
        kind = Kind.GRANT if not operations else random.choice([Kind.LOOK, Kind.LOOK, Kind.KEEP_ALIVE])
        if operations and done_s > due_s and gone_s > done_s:
            gone_s = due_s + random.random() * min(LATE_S, done_s - due_s)
        is_there = done_s < gone_s
        if kind is Kind.LOOK:
            told = look((invoked_s, completed_s), there=is_there)
        elif is_there and done_s <= max(due_s, 1):
            due_s = done_s + TTL_S
            told = (grant if kind is Kind.GRANT else kept)((invoked_s, completed_s))
            if kind is Kind.KEEP_ALIVE and random.random() < 0.2:
                told = replace(told, outcome=INFO)
        else:
            gone_s = min(gone_s, done_s)
            told = kept((invoked_s, completed_s), ttl_s=0)
        operations.append(told)
        at_s = completed_s + random.random() * 2
    assert not broken(*operations)


@pytest.mark.parametrize("renewal", [grant((0, 1)), kept((0, 1))])
@pytest.mark.parametrize("gone", [look((1.5, 2.9), there=False), kept((1.5, 2.9), ttl_s=0)])
def test_a_lease_that_is_gone_before_its_time_is_early(renewal: LeaseOperation, gone: LeaseOperation) -> None:
    assert broken(renewal, gone) == {"early_expiries": 1}
    assert not broken(renewal, replace(gone, completed_ns=3 * SECOND_NS))


def test_a_lease_that_its_client_revokes_ends_early_by_right() -> None:
    gone = look((1.5, 2.9), there=False)
    assert not broken(grant((0, 1)), revoke((1.2, 1.3)), gone)
    assert not broken(grant((0, 1)), replace(revoke((1.2, 1.3)), outcome=INFO), gone)
    assert broken(grant((0, 1)), replace(revoke((1.2, 1.3)), outcome=FAIL), gone) == {"early_expiries": 1}


def test_a_lease_that_is_there_long_after_its_time_is_late() -> None:
    assert not broken(grant((0, 1)), look((5.9, 7), there=True))
    assert broken(grant((0, 1)), look((6.1, 7), there=True)) == {"late_expiries": 1}
    assert not broken(grant((0, 1)), kept((3, 4)), look((8.9, 9), there=True))
    assert broken(grant((0, 1)), kept((3, 4)), look((9.1, 9.2), there=True)) == {"late_expiries": 1}


def test_a_keepalive_of_unknown_outcome_may_have_renewed_the_lease_at_any_time() -> None:
    unknown = replace(kept((3, 4)), outcome=INFO)
    assert not broken(grant((0, 1)), unknown, look((60, 61), there=True))


def test_a_leader_that_was_disturbed_gives_the_lease_its_time_again() -> None:
    seen = grant((0, 1)), look((10.9, 11), there=True)
    assert not broken(*seen, disturbances=[Disturbance(5 * SECOND_NS, 6 * SECOND_NS)])
    assert broken(*seen, disturbances=[Disturbance(5 * SECOND_NS, 6 * SECOND_NS - SECOND_NS // 2)])
    assert broken(*seen, disturbances=[Disturbance(7 * SECOND_NS, 10 * SECOND_NS)]), "its time was over before"
    again = [Disturbance(5 * SECOND_NS, 6 * SECOND_NS), Disturbance(10 * SECOND_NS, 12 * SECOND_NS)]
    assert not broken(grant((0, 1)), look((16.9, 17), there=True), disturbances=again)


def test_clocks_that_drift_bring_and_put_off_the_end() -> None:
    early, late = look((1.5, 2.9), there=False), look((6.1, 7), there=True)
    assert not broken(grant((0, 1)), early, rate=1.1)
    assert not broken(grant((0, 1)), late, rate=1.1)
    assert broken(grant((0, 1)), early, rate=1.01)
    assert broken(grant((0, 1)), late, rate=1.01)


@pytest.mark.parametrize("there", [kept((6, 7)), look((6, 7), there=True)])
@pytest.mark.parametrize("gone", [look((4.5, 5), there=False), kept((4.5, 5), ttl_s=0)])
def test_a_lease_that_was_gone_does_not_come_back(there: LeaseOperation, gone: LeaseOperation) -> None:
    assert "revived_leases" in broken(grant((0, 1)), gone, there)


def test_a_keepalive_beside_the_news_of_the_end_may_have_come_before_it() -> None:
    assert not broken(grant((0, 1)), kept((2, 2.1)), look((5.2, 5.3), there=False), replace(kept((5.25, 6)), ttl_s=0))


@pytest.mark.parametrize("there", [kept((2, 2.5)), look((2, 2.5), there=True)])
def test_a_revoked_lease_is_gone(there: LeaseOperation) -> None:
    assert broken(grant((0, 1)), revoke((1.2, 1.3)), there) == {"lived_on_after_revoke": 1}
    assert not broken(grant((0, 1)), replace(revoke((1.2, 1.3)), outcome=INFO), there)
    assert not broken(grant((0, 1)), revoke((1.2, 2.1)), there)


def test_a_grant_of_less_than_was_asked_for_is_short() -> None:
    assert broken(grant((0, 1), ttl_s=TTL_S - 1)) == {"short_grants": 1}


def test_an_id_is_granted_once() -> None:
    assert broken(grant((0, 1)), grant((2, 3))) == {"doubled_leases": 1}


def test_the_longest_time_from_the_end_of_a_lease_is_told() -> None:
    late = grant((0, 1)), look((4.5, 5.5), there=False)
    assert LeaseCheck(late).findings.counts["latest_ms"] == 1_500
    assert LeaseCheck(late, [Disturbance(0, SECOND_NS)]).findings.counts["latest_ms"] == 0
    assert LeaseCheck(late, [Disturbance(6 * SECOND_NS, 7 * SECOND_NS)]).findings.counts["latest_ms"] == 1_500


def test_what_was_refused_says_nothing() -> None:
    assert not broken(grant((0, 1)), replace(look((1.5, 2), there=False), outcome=FAIL))


def test_the_keys_of_a_lease_end_together() -> None:
    pair = Pair("v", 2, 2, 1)
    changes = [Change(2, "a", pair), Change(3, "b", pair), Change(4, "c", pair), Change(5, "a", None)]
    leases = {"a": 7, "b": 7, "c": 8}
    together = Timeline(2, 9, [*changes, Change(5, "b", None), Change(6, "c", None)])
    assert check_ends(together, leases).violations == {"split_expiries": 0}
    apart = Timeline(2, 9, [*changes, Change(6, "b", None), Change(6, "c", None)])
    assert check_ends(apart, leases).violations == {"split_expiries": 1}

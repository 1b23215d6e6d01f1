"""Election safety, log matching, leader completeness and persist-before-send, under schedules nobody would write."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.raft.schedules import CHANGING_STEPS, LEASE_STEPS, STEPS, Schedule, take_step, walk

ALL_NAMES = [name for name, _ in CHANGING_STEPS]


def check_healed(schedule: Schedule) -> None:
    """Whatever happened, the group finds one leader, loses nothing, and every member has its log."""
    committed = len(schedule.watch.committed)
    schedule.heal()
    [leader] = schedule._leading()
    core = schedule._core(leader)
    assert core.is_ready
    assert len(schedule.watch.committed) >= committed
    for node_id in core.membership.members:
        peer = schedule.peers[node_id]
        assert peer.log.items == leader.log.items
        assert schedule._core(peer).leader_id == leader.node_id


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([1, 2, 3, 5]),
    st.lists(st.tuples(st.sampled_from(ALL_NAMES), st.integers(0, 999)), max_size=120),
    st.integers(0, 99),
)
def test_no_short_schedule_breaks_a_promise(size: int, steps: list[tuple[str, int]], seed: int) -> None:
    schedule = Schedule(size, seed, spares=2)
    for name, choice in steps:
        take_step(schedule, name, choice)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("seed", range(10))
def test_no_long_walk_breaks_a_promise_and_the_cluster_heals(size: int, seed: int) -> None:
    schedule = Schedule(size, seed)
    walk(schedule, Random(1000 * size + seed), STEPS, 2_500)
    check_healed(schedule)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("seed", range(12))
def test_no_walk_with_changing_members_lost_disks_and_trimmed_logs_breaks_a_promise(size: int, seed: int) -> None:
    schedule = Schedule(size, seed, spares=2)
    walk(schedule, Random(2000 * size + seed), CHANGING_STEPS, 2_500)
    check_healed(schedule)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("seed", range(12))
def test_no_read_by_a_lease_misses_what_was_acknowledged_with_clocks_as_far_apart_as_allowed(
    size: int, seed: int
) -> None:
    schedule = Schedule(size, seed, lease_reads=True)
    walk(schedule, Random(3000 * size + seed), LEASE_STEPS, 2_500)
    check_healed(schedule)


def test_no_read_by_a_lease_misses_anything_while_members_change() -> None:
    steps = (*LEASE_STEPS, ("change", 10), ("wipe", 1), ("may_lead", 2), ("deliver", 30))
    for seed in range(12):
        schedule = Schedule(3, seed, spares=2, lease_reads=True)
        walk(schedule, Random(seed), steps, 2_500)
        check_healed(schedule)


def test_clocks_further_apart_than_allowed_are_noticed_by_these_schedules() -> None:
    seed = 137
    schedule = Schedule(3, seed, lease_reads=True, clock_drift=0.5)
    with pytest.raises(AssertionError, match="reads by its lease and misses"):
        walk(schedule, Random(seed), LEASE_STEPS, 2_500)


def counted(steps: Sequence[tuple[str, int]], *, spares: int, lease_reads: bool) -> dict[str, int]:
    leaders = committed = changes = resets = tails = lease_reads_done = 0
    for seed in range(8):
        schedule = Schedule(3, seed, spares=spares, lease_reads=lease_reads)
        walk(schedule, Random(seed), steps, 2_500)
        leaders += len(schedule.watch.leaders)
        committed += len(schedule.watch.committed)
        changes += sum(value in schedule.changes for _, value in schedule.watch.committed)
        resets += schedule.watch.resets
        tails += schedule.watch.tails
        lease_reads_done += schedule.watch.lease_reads
    return {
        "leaders": leaders,
        "committed": committed,
        "changes": changes,
        "resets": resets,
        "tails": tails,
        "lease reads": lease_reads_done,
    }


def test_the_walks_go_somewhere() -> None:
    """A fuzzer that elects nobody and commits nothing proves nothing."""
    plain = counted(STEPS, spares=0, lease_reads=False)
    assert plain["leaders"] >= 20
    assert plain["committed"] >= 100
    assert plain["tails"] >= 5
    changing = counted(CHANGING_STEPS, spares=2, lease_reads=False)
    assert changing["changes"] >= 40
    assert changing["resets"] >= 10
    leased = counted(LEASE_STEPS, spares=0, lease_reads=True)
    assert leased["leaders"] >= 100
    assert leased["lease reads"] >= 500

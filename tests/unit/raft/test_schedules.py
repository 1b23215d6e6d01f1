"""Election safety, log matching, leader completeness and persist-before-send, under schedules nobody would write."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.raft.schedules import STEPS, Schedule, take_step

NAMES = [name for name, _ in STEPS]
WEIGHTS = [weight for _, weight in STEPS]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([1, 2, 3, 5]),
    st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 999)), max_size=120),
    st.integers(0, 99),
)
def test_no_short_schedule_breaks_a_promise(size: int, steps: list[tuple[str, int]], seed: int) -> None:
    schedule = Schedule(size, seed)
    for name, choice in steps:
        take_step(schedule, name, choice)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("seed", range(10))
def test_no_long_walk_breaks_a_promise_and_the_cluster_heals(size: int, seed: int) -> None:
    random = Random(1000 * size + seed)
    schedule = Schedule(size, seed)
    for name in random.choices(NAMES, WEIGHTS, k=2_500):
        take_step(schedule, name, random.getrandbits(16))
    committed = len(schedule.watch.committed)

    schedule.heal()
    [leader] = schedule._leading()
    assert len(schedule.watch.committed) > committed or committed == len(leader.log.items)
    assert all(peer.log.items == leader.log.items for peer in schedule.peers.values())
    assert all(peer.core is not None and peer.core.leader_id == leader.node_id for peer in schedule.peers.values())


def test_the_walks_go_somewhere() -> None:
    """A fuzzer that elects nobody and commits nothing proves nothing."""
    leaders = committed = 0
    for seed in range(4):
        random = Random(seed)
        schedule = Schedule(3, seed)
        for name in random.choices(NAMES, WEIGHTS, k=2_500):
            take_step(schedule, name, random.getrandbits(16))
        leaders += len(schedule.watch.leaders)
        committed += len(schedule.watch.committed)
    assert leaders >= 20
    assert committed >= 100

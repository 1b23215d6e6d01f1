"""Partitions are what their names say, and who could still lead is told."""

from __future__ import annotations

from random import Random

import pytest

from jepsen.nemesis.api import majority_connected
from jepsen.nemesis.catalogue import NEMESES, lanes
from jepsen.nemesis.partitions import PARTITIONS, describe
from jepsen.network import Link

NAMES = ["n0", "n1", "n2", "n3", "n4"]
SEEDS = range(50)


def reachable(name: str, cut: set[Link]) -> set[str]:
    """Whom a host has ways to and from, itself counted."""
    return {name} | {other for other in NAMES if (name, other) not in cut and (other, name) not in cut}


@pytest.mark.parametrize("seed", SEEDS)
def test_halves_do_not_see_each_other(seed: int) -> None:
    cut = PARTITIONS["partition-random-halves"](NAMES, Random(seed), None)
    assert sorted(len(reachable(name, cut)) for name in NAMES) == [2, 2, 3, 3, 3]


@pytest.mark.parametrize("seed", SEEDS)
def test_in_a_ring_everybody_sees_a_majority_and_no_two_the_same(seed: int) -> None:
    cut = PARTITIONS["partition-majorities-ring"](NAMES, Random(seed), None)
    seen = [frozenset(reachable(name, cut)) for name in NAMES]
    assert all(len(each) == 3 for each in seen)
    assert len(set(seen)) == 5


@pytest.mark.parametrize("seed", SEEDS)
def test_over_a_bridge_one_host_sees_all(seed: int) -> None:
    cut = PARTITIONS["bridge"](NAMES, Random(seed), None)
    assert sorted(len(reachable(name, cut)) for name in NAMES) == [3, 3, 3, 3, 5]


@pytest.mark.parametrize("seed", SEEDS)
def test_one_way_cuts_one_direction_only(seed: int) -> None:
    cut = PARTITIONS["one-way"](NAMES, Random(seed), "n2")
    assert len(cut) == 4
    assert not {(receiver, sender) for sender, receiver in cut} & cut


@pytest.mark.parametrize(("name", "leads"), [(name, True) for name in PARTITIONS])
def test_every_partition_leaves_somebody_who_could_lead(name: str, leads: bool) -> None:
    for seed in SEEDS:
        cut = frozenset(PARTITIONS[name](NAMES, Random(seed), "n0"))
        assert majority_connected(NAMES, cut, frozenset()) == leads


def test_a_partition_is_told_by_its_islands_and_a_bridge_by_its_links() -> None:
    halves = {(one, other) for one in NAMES for other in NAMES if (one in NAMES[:2]) != (other in NAMES[:2])}
    assert describe(NAMES, halves) == "n0 n1 | n2 n3 n4"
    assert describe(NAMES, {("n0", "n1")}) == "1 links cut: n0→n1"


def test_without_a_majority_of_nodes_nobody_could_lead() -> None:
    assert majority_connected(NAMES, frozenset(), frozenset({"n0", "n1"}))
    assert not majority_connected(NAMES, frozenset(), frozenset({"n0", "n1", "n2"}))


def test_several_nemeses_take_turns() -> None:
    [in_turn] = lanes(["loss", "bridge"], Random(0))
    assert [in_turn().name for _ in range(3)] == ["loss", "bridge", "loss"]


def test_all_is_every_nemesis_by_chance_two_at_once() -> None:
    of_the_network, others = lanes(["all"], Random(0))
    assert {make().name for _ in range(2000) for make in (of_the_network, others)} == set(NEMESES)

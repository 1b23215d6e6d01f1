"""A cut of ``python -m tests.liveness``: all directed graphs of three nodes, some of five, and the scenarios by name.

The scenarios are those of Omni-Paxos (Ng et al., EuroSys '23, §2), in which protocols that take being heard for being
able to lead elect nobody, or one after another.
"""

from __future__ import annotations

import pytest

from dledger.raft import elections
from dledger.raft.leadership import Leadership
from tests.liveness.graphs import DIRECTED_THREE, UNDIRECTED_FIVE
from tests.liveness.run import GRANTED, TIMEOUT_S, Case, Kind, Outcome, put_in_force, run_case, stable_leader
from tests.support.cluster import SimCluster
from tests.support.virtual_time import virtual_time

KINDS = list(Kind)


def check(case: Case) -> Outcome:
    outcome = run_case(case)
    assert not outcome.is_failed, f"{case}: {outcome}"
    return outcome


def test_a_hub_has_links_both_ways_to_a_quorum() -> None:
    star = UNDIRECTED_FIVE.graph(UNDIRECTED_FIVE.number((0, 1), (0, 2)))
    assert star.hubs == [0]
    assert DIRECTED_THREE.graph(DIRECTED_THREE.number((0, 1), (1, 2), (2, 0))).hubs == []
    assert DIRECTED_THREE.graph(DIRECTED_THREE.number((0, 1), (1, 0))).hubs == [0, 1]


def test_a_hub_is_up_to_date_when_a_quorum_of_its_neighbours_has_no_longer_log() -> None:
    star = UNDIRECTED_FIVE.graph(UNDIRECTED_FIVE.number((0, 1), (0, 2)))
    assert star.can_elect([(1, 5), (1, 5), (1, 4), (1, 9), (2, 1)])
    assert not star.can_elect([(1, 5), (1, 5), (2, 4), (1, 1), (1, 1)])


@pytest.mark.parametrize("number", range(DIRECTED_THREE.graph_count))
def test_a_leader_comes_to_stay_in_every_directed_graph_of_three(number: int) -> None:
    for leader in range(DIRECTED_THREE.size):
        check(Case(DIRECTED_THREE, number, leader, KINDS[(number + leader) % len(KINDS)]))


@pytest.mark.parametrize("number", range(7, UNDIRECTED_FIVE.graph_count, 37))
def test_a_leader_comes_to_stay_in_some_graphs_of_five(number: int) -> None:
    check(Case(UNDIRECTED_FIVE, number, number % 5, KINDS[number % len(KINDS)]))


# By name -------------------------------------------------------------------------------------------------------------

STAR = UNDIRECTED_FIVE.number((0, 1), (0, 2), (0, 3), (0, 4))
CHAIN = UNDIRECTED_FIVE.number((0, 1), (1, 2), (2, 3), (3, 4))


@pytest.mark.parametrize("kind", [Kind.LEVEL, Kind.CLOSED, Kind.LEASES])
def test_quorum_loss_a_leader_that_only_the_hub_hears_makes_room_for_the_hub(kind: Kind) -> None:
    outcome = check(Case(UNDIRECTED_FIVE, STAR, 1, kind))
    assert outcome.is_up_to_date
    assert outcome.led_s is not None
    assert outcome.led_s <= GRANTED * TIMEOUT_S


def test_without_check_quorum_this_is_seen_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leadership, "hears_quorum", lambda _leadership, _now_ms: True)
    assert run_case(Case(UNDIRECTED_FIVE, STAR, 1, Kind.LEVEL)).is_failed


async def _behind_and_alone(cluster: SimCluster) -> float | None:
    """The hub was away while others committed, and is then the only one with links to a quorum."""
    leader = await cluster.leader()
    hub = cluster.others(leader)[0]
    at = list(cluster.nodes).index(hub.id)
    cluster.faults.partition([hub.id], [node.id for node in cluster.others(hub)])
    for record in (b"a", b"b", b"c"):
        await leader.append(record)
    star = UNDIRECTED_FIVE.graph(UNDIRECTED_FIVE.number(*((min(at, b), max(at, b)) for b in range(5) if b != at)))
    put_in_force(cluster, star)
    ends: list[tuple[int, int]] = [(node.log.last.term, node.log.last.position) for node in cluster.nodes.values()]
    assert not star.can_elect(ends)
    led_s = await stable_leader(cluster, star)
    assert led_s is None or (hub.leads and hub.records()[:3] == [b"a", b"b", b"c"])
    return led_s


@virtual_time
async def test_constrained_election_a_hub_that_is_behind_fetches_what_it_lacks_and_leads() -> None:
    async with SimCluster(5) as cluster:
        assert await _behind_and_alone(cluster) is not None


@virtual_time
async def test_constrained_election_is_lost_without_that() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(elections, "ROUNDS_BEFORE_FETCH", 1 << 60)
        async with SimCluster(5) as cluster:
            assert await _behind_and_alone(cluster) is None


@pytest.mark.parametrize("leader", range(5))
def test_chained_those_who_do_not_hear_the_leader_do_not_unseat_it(leader: int) -> None:
    assert check(Case(UNDIRECTED_FIVE, CHAIN, leader, Kind.LEVEL)).is_up_to_date


def test_chained_the_middle_of_three_stays_with_the_leader_that_it_hears() -> None:
    chain = DIRECTED_THREE.number((0, 1), (1, 0), (1, 2), (2, 1))
    for leader in range(3):
        assert check(Case(DIRECTED_THREE, chain, leader, Kind.LEVEL)).is_up_to_date

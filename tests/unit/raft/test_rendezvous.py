"""The order in which nodes are to lead a group: everybody's the same, fair over many groups, and stable."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from dledger.common.types import NodeId
from dledger.raft.rendezvous import ranked

NODES = st.sets(st.text(min_size=1, max_size=12).map(NodeId), min_size=1, max_size=9)
GROUPS = [f"orders.{number}" for number in range(2_000)]


def first_choices(nodes: set[NodeId]) -> dict[str, NodeId]:
    return {group: ranked(group, nodes)[0] for group in GROUPS}


@given(st.text(max_size=20), NODES, st.integers(min_value=0))
def test_the_order_is_a_function_of_the_group_and_the_nodes_alone(group: str, nodes: set[NodeId], seed: int) -> None:
    shuffled = sorted(nodes)
    Random(seed).shuffle(shuffled)
    assert ranked(group, shuffled) == ranked(group, nodes)
    assert sorted(ranked(group, nodes)) == sorted(nodes)


@given(st.text(max_size=20), NODES, st.data())
def test_without_a_node_the_others_keep_their_order(group: str, nodes: set[NodeId], data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(sorted(nodes)))
    assert ranked(group, nodes - {gone}) == [node for node in ranked(group, nodes) if node != gone]


@given(st.sets(st.from_regex(r"[a-z]{1,8}[0-9]{0,3}", fullmatch=True).map(NodeId), min_size=2, max_size=7))
def test_each_node_is_the_first_choice_of_about_its_share(nodes: set[NodeId]) -> None:
    shares = Counter(first_choices(nodes).values())
    fair = len(GROUPS) / len(nodes)
    assert all(0.7 * fair < shares[node] < 1.3 * fair for node in nodes), shares


def test_the_groups_of_a_node_that_is_gone_go_to_all_others() -> None:
    nodes = {NodeId(f"n{number}") for number in range(5)}
    before, after = first_choices(nodes), first_choices(nodes - {NodeId("n2")})
    moved = [group for group in GROUPS if before[group] != after[group]]
    assert all(before[group] == "n2" for group in moved)
    heirs = Counter(after[group] for group in moved)
    assert all(0.7 * len(moved) / 4 < heirs[node] < 1.3 * len(moved) / 4 for node in nodes - {NodeId("n2")}), heirs

"""Who takes a node's place in a group when it is moved off."""

from __future__ import annotations

from dledger.cli.moving import loads_of, plan_move
from dledger.client import GroupInfo
from dledger.common.types import Member, NodeId


def group(name: str, voters: str, learners: str = "") -> GroupInfo:
    members = [Member(NodeId(each), f"{each}:1") for each in voters.split()]
    members += [Member(NodeId(each), f"{each}:1", voter=False) for each in learners.split()]
    return GroupInfo(name, 17, tuple(members), tuple(members))


def test_the_node_with_the_fewest_groups_takes_the_place() -> None:
    groups = [group("a", "n0 n1 n2"), group("b", "n0 n1 n3"), group("c", "n3")]
    loads = loads_of(groups, ["n1", "n2", "n3", "n4"])
    assert loads == {"n1": 2, "n2": 1, "n3": 2, "n4": 0}
    assert plan_move(groups[0], "n0", loads).successor == "n4"
    del loads["n4"]
    assert plan_move(groups[0], "n0", loads).successor == "n3"
    assert plan_move(groups[1], "n0", loads).successor == "n2"


def test_nobody_takes_it_where_nobody_is_left_or_the_node_did_not_vote() -> None:
    only = group("a", "n0 n1 n2")
    assert plan_move(only, "n0", loads_of([only], ["n1", "n2"])).successor is None
    reading = group("a", "n1 n2 n3", "n0")
    assert plan_move(reading, "n0", loads_of([reading], ["n1", "n2", "n3", "n4"])).successor is None


def test_an_interrupted_move_goes_on_where_it_was() -> None:
    loads = {"n1": 1, "n2": 1, "n3": 9, "n4": 0}
    assert plan_move(group("a", "n0 n1 n2", "n3"), "n0", loads).successor == "n3", "it was added already"
    assert plan_move(group("a", "n0 n1 n2 n3"), "n0", loads).successor is None, "it votes already"

"""Whom a node dials and lets in, whatever the members do; and on whom no quorum rests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from dledger.common.errors import Code, PeerRefused
from dledger.common.types import Member, NodeId
from dledger.node.peer_book import PeerBook
from dledger.node.peers import MAX_STRANGERS, Peers
from dledger.transport.transport_api import PeerIdentity

N0, N1, N2, N3 = (NodeId(f"n{at}") for at in range(4))
CLUSTER = "c"
G, H = "g", "h.7"


def member(node_id: NodeId, **fields: Any) -> Member:
    return Member(node_id, f"{node_id}:1", **fields)


FOUNDERS = [member(node_id) for node_id in (N0, N1, N2)]


def hello(node_id: NodeId, **fields: Any) -> PeerIdentity:
    return PeerIdentity(node_id, b"u", 1, (7,), CLUSTER, "client:1", "", f"{node_id}:1")._replace(**fields)


class Roster:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.founds = False
        self.doubted: set[NodeId] = set()
        self.forgotten: list[NodeId] = []

    def doubt(self, peer: NodeId) -> None:
        self.doubted.add(peer)

    def may_found(self, may_found: bool) -> None:
        self.founds = may_found

    def trust(self, peer: NodeId) -> None:
        self.doubted.remove(peer)

    def forget(self, peer: NodeId) -> None:
        self.forgotten.append(peer)


class Wires:
    """A transport that dials nobody."""

    def __init__(self) -> None:
        self.peers: dict[NodeId, str] = {}
        self.connected: set[NodeId] = set()

    def set_peers(self, addresses: dict[NodeId, str]) -> None:
        self.peers = addresses

    def is_connected(self, peer: NodeId) -> bool:
        return peer in self.connected


class Scene:
    """Node n0, which has started."""

    def __init__(self, members: Iterable[Member] = FOUNDERS, configured: Iterable[NodeId] = (N0, N1, N2)) -> None:
        async def write(_payload: bytes) -> None: ...

        self.roster, self.wires, self.saves = Roster(), Wires(), 0
        self.of_n0 = Peers(
            N0,
            {node_id: f"{node_id}:1" for node_id in configured},
            founding_group=G,
            book=PeerBook(b"", write),
            transport=self.wires,  # type: ignore[arg-type]
            told_cluster_id=lambda: CLUSTER,
            is_new=lambda: True,
            save=self._count_save,
        )
        self.of_n0.add_group(G, lambda: self.roster)
        self.follow_members(list(members), is_committed=True)
        self.of_n0.start()

    def follow_members(self, members: list[Member], *, is_committed: bool, group: str = G) -> None:
        self.of_n0.follow_members(group, members, is_committed=is_committed)

    def follow_leader(self, leader_id: NodeId) -> None:
        self.of_n0.follow_leader(G, leader_id)

    def _count_save(self) -> None:
        self.saves += 1

    def meet(self, identity: PeerIdentity, cluster_id: str = CLUSTER) -> Code | None:
        """How a hello is refused."""
        try:
            self.of_n0.check(identity, cluster_id)
        except PeerRefused as refusal:
            return refusal.code
        return None

    @property
    def dialled(self) -> set[NodeId]:
        return set(self.wires.peers)


# Whom to speak with --------------------------------------------------------------------------------------------------


def test_a_member_dials_the_others_of_its_log_whatever_its_configuration_says() -> None:
    scene = Scene(members=[member(N0), member(N3)])
    scene.follow_leader(N0)
    assert scene.wires.peers == {N3: "n3:1"}
    assert scene.meet(hello(N1)) is Code.UNKNOWN_MEMBER


def test_a_node_that_is_no_member_dials_those_of_its_configuration_and_of_its_log() -> None:
    scene = Scene(members=[member(N3)], configured=[N1])
    assert scene.dialled == {N1, N3}
    assert scene.meet(hello(N1)) is scene.meet(hello(N3)) is None


def test_who_is_removed_may_speak_until_that_is_committed() -> None:
    scene = Scene()
    scene.follow_members([member(N0), member(N1)], is_committed=False)
    assert scene.dialled == {N1, N2}
    scene.follow_members([member(N0), member(N1)], is_committed=True)
    assert scene.dialled == {N1}
    assert scene.meet(hello(N2)) is None, "nobody leads, and it is of this cluster: what it says is judged elsewhere"
    scene.follow_leader(N0)
    assert scene.meet(hello(N2)) is Code.UNKNOWN_MEMBER


def test_a_removal_that_is_taken_back_leaves_a_member() -> None:
    scene = Scene()
    scene.follow_members([member(N0), member(N1)], is_committed=False)
    scene.follow_members(FOUNDERS, is_committed=True)
    assert scene.dialled == {N1, N2}
    assert scene.meet(hello(N2)) is None


def test_a_changed_address_is_dialled() -> None:
    scene = Scene()
    scene.follow_members([member(N0), Member(N1, "elsewhere:1"), member(N2)], is_committed=True)
    assert scene.wires.peers[N1] == "elsewhere:1"


def test_another_cluster_and_our_own_id_are_turned_away() -> None:
    scene = Scene()
    assert scene.meet(hello(N1, cluster_id="other")) is Code.UNKNOWN_CLUSTER
    assert scene.meet(hello(N0)) is Code.UNEXPECTED_MEMBER
    assert scene.meet(hello(N1, cluster_id="")) is None, "it does not know yet"


# Strangers -----------------------------------------------------------------------------------------------------------


def test_a_stranger_of_this_cluster_is_heard_while_no_leader_is() -> None:
    scene = Scene()
    assert scene.meet(hello(N3)) is None
    assert N3 in scene.dialled
    scene.follow_leader(N3)
    assert N3 in scene.dialled, "it is the leader that this log does not know yet"
    scene.follow_leader(N1)
    assert N3 not in scene.dialled


@pytest.mark.parametrize(
    "stranger",
    [
        pytest.param(hello(N3, cluster_id=""), id="of no cluster"),
        pytest.param(hello(N3, peer_address=""), id="without an address"),
        pytest.param(hello(N3, peer_address="nonsense"), id="with a bad address"),
    ],
)
def test_a_stranger_that_may_be_anybody_is_turned_away(stranger: PeerIdentity) -> None:
    assert Scene().meet(stranger) is Code.UNKNOWN_MEMBER


def test_a_node_that_hears_its_leader_needs_no_strangers() -> None:
    scene = Scene()
    scene.follow_leader(N1)
    assert scene.meet(hello(N3)) is None, "the leader is not connected"
    scene.follow_leader(N2)
    scene.wires.connected.add(N2)
    assert scene.meet(hello(N3)) is Code.UNKNOWN_MEMBER


def test_strangers_are_few_and_are_not_remembered() -> None:
    scene = Scene()
    for at in range(MAX_STRANGERS):
        assert scene.meet(hello(NodeId(f"s{at}"))) is None
    assert scene.meet(hello(N3)) is Code.UNKNOWN_MEMBER
    assert scene.saves == 0


# Doubt ---------------------------------------------------------------------------------------------------------------


def test_a_later_start_of_the_same_disk_is_no_news() -> None:
    """What it acknowledged is still held against it: only so is it noticed when some of that is gone."""
    scene = Scene()
    scene.meet(hello(N1))
    scene.meet(hello(N1, start_count=2, start_nonces=(7, 8)))
    assert not scene.roster.doubted
    assert scene.roster.forgotten == []


def test_another_disk_is_in_doubt_and_what_the_first_acknowledged_forgotten() -> None:
    scene = Scene()
    scene.meet(hello(N1))
    scene.meet(hello(N1, node_uuid=b"v"))
    assert scene.roster.doubted == {N1}
    assert scene.roster.forgotten == [N1]


def test_the_right_disk_ends_the_doubt_and_inherits_nothing() -> None:
    scene = Scene()
    for identity in (hello(N1), hello(N1, node_uuid=b"v"), hello(N1, start_count=2, start_nonces=(7, 8))):
        scene.meet(identity)
    assert not scene.roster.doubted
    assert scene.roster.forgotten == [N1, N1]


def test_an_admission_lifts_the_doubt_when_it_is_appended_and_brings_it_back_when_it_is_cut() -> None:
    scene = Scene()
    scene.meet(hello(N1))
    scene.meet(hello(N1, node_uuid=b"v"))
    admitted = [member(N0), member(N1, voter=False, node_uuid=b"v", admitted_start_count=1), member(N2)]
    scene.follow_members(admitted, is_committed=False)
    assert not scene.roster.doubted
    scene.follow_members(FOUNDERS, is_committed=True)
    assert scene.roster.doubted == {N1}
    scene.follow_members(admitted, is_committed=True)
    scene.meet(hello(N1, node_uuid=b"v", start_count=2, start_nonces=(7, 8)))
    assert not scene.roster.doubted


def test_lost_frames_are_a_doubt_of_their_own() -> None:
    scene = Scene()
    scene.meet(hello(N1))
    scene.of_n0.trust(G).lost_frames(N1)
    assert scene.roster.doubted == {N1}
    scene.meet(hello(N1, start_count=2, start_nonces=(7, 8)))
    assert scene.roster.doubted == {N1}, "a restart mends nothing"


def test_of_two_under_one_id_the_connected_one_stays_unless_only_that_one_is_in_doubt() -> None:
    scene = Scene()
    scene.meet(hello(N1))
    scene.wires.connected.add(N1)
    impostor = hello(N1, node_uuid=b"v")
    assert scene.meet(impostor) is Code.UNEXPECTED_MEMBER
    assert not scene.roster.doubted
    scene.wires.connected.clear()
    assert scene.meet(impostor) is None
    scene.wires.connected.add(N1)
    assert scene.meet(hello(N1)) is None
    assert not scene.roster.doubted


# Founding ------------------------------------------------------------------------------------------------------------


def test_a_cluster_is_founded_by_founders_who_have_all_met_new() -> None:
    scene = Scene()
    assert not scene.roster.founds
    scene.meet(hello(N1, is_new=True))
    assert scene.of_n0.founders_missing == [N2]
    scene.meet(hello(N2, is_new=True))
    assert scene.roster.founds


def test_a_founder_that_holds_a_log_forbids_another_founding() -> None:
    scene = Scene()
    scene.meet(hello(N1, is_new=True))
    scene.meet(hello(N2, is_new=False))
    assert not scene.roster.founds


def test_a_founder_alone_has_nobody_to_meet() -> None:
    assert Scene(members=[member(N0)], configured=[N0]).roster.founds


def test_who_was_in_doubt_and_was_removed_is_in_doubt_no_more_when_it_is_added_again() -> None:
    scene = Scene()
    scene.meet(hello(N1))
    scene.meet(hello(N1, node_uuid=b"v"))
    assert scene.roster.doubted == {N1}
    without = [member(N0), member(N2)]
    scene.follow_members(without, is_committed=False)
    scene.follow_members(without, is_committed=True)
    scene.follow_members([member(N0), member(N1, voter=False), member(N2)], is_committed=True)
    assert scene.meet(hello(N1, node_uuid=b"v")) is None
    assert not scene.roster.doubted


# Groups --------------------------------------------------------------------------------------------------------------


def with_another_group(members: list[Member]) -> tuple[Scene, Roster]:
    """Of n0, whose group ``G`` has all founders, and ``H`` these members."""
    scene, roster = Scene(), Roster()
    scene.of_n0.add_group(H, lambda: roster)
    scene.follow_members(members, is_committed=True, group=H)
    return scene, roster


def test_a_node_dials_the_members_of_all_its_groups() -> None:
    scene, _ = with_another_group([member(N0), member(N3)])
    assert scene.dialled == {N1, N2, N3}
    assert scene.meet(hello(N3)) is None
    scene.of_n0.remove_group(H)
    assert scene.dialled == {N1, N2}


def test_another_disk_is_in_doubt_in_every_group_that_knew_the_first() -> None:
    scene, roster = with_another_group([member(N0), member(N1)])
    scene.meet(hello(N1))
    scene.meet(hello(N1, node_uuid=b"v"))
    assert scene.roster.doubted == roster.doubted == {N1}


def test_a_member_of_one_group_is_not_forgotten_because_another_never_had_it() -> None:
    """Its emptied disk would count there, with a log that lacks what it acknowledged."""
    scene, roster = with_another_group([member(N0), member(N3)])
    scene.meet(hello(N3))
    scene.follow_members(FOUNDERS, is_committed=True)
    scene.meet(hello(N3, node_uuid=b"v"))
    assert roster.doubted == {N3}
    assert not scene.roster.doubted


def test_an_admission_in_one_group_ends_no_doubt_in_another() -> None:
    scene, roster = with_another_group([member(N0), member(N1)])
    scene.meet(hello(N1))
    scene.meet(hello(N1, node_uuid=b"v"))
    admitted = member(N1, voter=False, node_uuid=b"v", admitted_start_count=1)
    scene.follow_members([member(N0), admitted, member(N2)], is_committed=True)
    assert not scene.roster.doubted
    assert roster.doubted == {N1}


def test_lost_frames_are_a_doubt_in_that_group_alone() -> None:
    scene, roster = with_another_group([member(N0), member(N1)])
    scene.meet(hello(N1))
    scene.of_n0.trust(H).lost_frames(N1)
    assert roster.doubted == {N1}
    assert not scene.roster.doubted


def test_a_group_that_is_opened_later_judges_whom_the_node_met_before() -> None:
    scene = Scene()
    scene.meet(hello(N1))
    roster = Roster()
    scene.of_n0.add_group(H, lambda: roster)
    scene.follow_members([member(N0), member(N1, node_uuid=b"v")], is_committed=True, group=H)
    assert roster.doubted == {N1}, "the record of the group names another disk"


def test_a_stranger_is_heard_while_any_group_hears_no_leader() -> None:
    scene, _ = with_another_group([member(N0), member(N1)])
    scene.wires.connected.add(N1)
    scene.of_n0.follow_leader(G, N1)
    assert scene.meet(hello(N3)) is None
    scene.of_n0.follow_leader(H, N1)
    assert N3 not in scene.dialled
    assert scene.meet(hello(N3)) is Code.UNKNOWN_MEMBER


def test_only_the_founding_group_is_founded_by_the_configuration() -> None:
    scene, roster = with_another_group(FOUNDERS)
    for peer in (N1, N2):
        scene.meet(hello(peer, is_new=True))
    assert scene.roster.founds
    assert not roster.founds

"""One group's trust in its peers: in the disks that kept their promises, and in the nodes that may found the group.

Doubt follows the disk (peer_book.py). A peer in doubt still receives everything, but no quorum of the group rests on
it. The doubt ends when the known disk comes back, or when the group's members admit the present one. Each group judges
for itself: a readmission in one group says nothing in another.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from dledger.common.types import Member, NodeId, NodeStart
from dledger.node.peer_book import GroupPeers
from dledger.transport.transport_api import PeerIdentity

logger = logging.getLogger(__name__)


class TrustListener(Protocol):
    """A group's replica, as far as its peers' disks are concerned."""

    def doubt(self, peer: NodeId) -> None:
        """No quorum rests on ``peer`` from now on."""
        ...

    def may_found(self, may_found: bool) -> None:
        """Whether this node, while its log is empty, may take part in founding the group."""
        ...

    def trust(self, peer: NodeId) -> None:
        """``peer`` has its known disk again: its acknowledgements count from now on."""
        ...

    def forget(self, peer: NodeId) -> None:
        """``peer`` has another disk: nothing of what it acknowledged before counts."""
        ...


class PeerTrust:
    """Of one group. ``listener`` is the replica that the group has now; it is told of every change.

    ``configured`` are the peers of the node's configuration, for the group founded from them. It is empty for a group
    with founders in its record. ``save`` makes the book durable.
    """

    def __init__(
        self,
        group: str,
        node_id: NodeId,
        configured: Mapping[NodeId, str],
        *,
        book: GroupPeers,
        listener: Callable[[], TrustListener],
        save: Callable[[], object],
    ) -> None:
        self.group = group
        self.members: dict[NodeId, Member] = {}
        self.leaving: dict[NodeId, str] = {}
        """Members that an uncommitted change removes: they are to hear of it, and may be back."""
        self.leader_id = NodeId("")
        self.may_found = False
        self._node_id = node_id
        self._configured = configured
        self._book = book
        self._listener = listener
        self._save = save
        self._doubts: dict[NodeId, str] = {}

    # The members of the group ------------------------------------------------------------------------------------

    @property
    def configured(self) -> Mapping[NodeId, str]:
        """The nodes to speak with by the configuration. Once the log names this node as a member, the log knows
        better."""
        return {} if self._node_id in self.members else self._configured

    @property
    def addresses(self) -> dict[NodeId, str]:
        """All nodes that this group needs to reach, and their addresses."""
        return {
            **self.configured,
            **self.leaving,
            **{member.id: member.peer_address for member in self.members.values()},
        }

    @property
    def known(self) -> frozenset[NodeId]:
        """The nodes that the group met, in this life or an earlier one."""
        return self._book.node_ids

    def expects(self, node_id: NodeId) -> bool:
        return node_id in self.members or node_id in self.configured

    def follow_members(
        self,
        members: Sequence[Member],
        met: Mapping[NodeId, PeerIdentity],
        strangers: Collection[NodeId],
        *,
        is_committed: bool,
    ) -> None:
        """Takes the members by the group's log. ``is_committed``: nobody can take it back. ``met``: each peer of the
        node, as it last described itself. ``strangers``: those among them known to no group."""
        before, self.members = self.members, {member.id: member for member in members}
        if is_committed:
            self.leaving.clear()
            self._settle(met, strangers)
        else:
            self.leaving |= {each.id: each.peer_address for each in before.values() if each.id not in self.members}
        for identity in list(met.values()):
            self.judge(identity)
        for member in members:
            if member.id not in met and self._book.has_lost_frames(member):
                self._set_doubt(member.id, f"{member.id} lost frames that were committed")

    def _settle(self, met: Mapping[NodeId, PeerIdentity], strangers: Collection[NodeId]) -> None:
        """Takes the members' final word: the disks that they admit, and the peers that are gone."""
        expected = {*self.members, *self.configured}
        for gone in sorted(self._doubts.keys() - expected - {*strangers}):
            self._end_doubt(gone)  # the next node with the id is another
        changed = [self._book.admit(member, _start_in(met, member.id)) for member in self.members.values()]
        changed.append(self._book.keep_only(expected))
        if any(changed):
            self._save()

    # Disks -------------------------------------------------------------------------------------------------------

    def meet(self, identity: PeerIdentity, before: PeerIdentity | None) -> None:
        """A peer said hello. ``before``: what it said the last time."""
        node_id, start = identity.node_id, start_of(identity)
        had_another_disk = before is not None and before.node_uuid != identity.node_uuid
        was_in_doubt = node_id in self._doubts
        if had_another_disk or (was_in_doubt and before is not None and start_of(before) != start):
            self._listener().forget(node_id)
        self.judge(identity)

    def judge(self, identity: PeerIdentity) -> None:
        """Doubts a peer, or ends the doubt, by what it said of its disk."""
        node_id = identity.node_id
        doubt = self.doubt_of(identity)
        if doubt is not None:
            self._set_doubt(node_id, doubt)
            return
        self._end_doubt(node_id)
        if self.expects(node_id) and self._book.remember(self._member(node_id), start_of(identity)):
            self._save()

    def doubt_of(self, identity: PeerIdentity) -> str | None:
        """Why no quorum may rest on a peer that says this of itself. None: nothing is against it."""
        return self._book.doubt(self._member(identity.node_id), start_of(identity))

    def is_in_doubt(self, node_id: NodeId) -> bool:
        return node_id in self._doubts

    def disk_of(self, node_id: NodeId) -> bytes:
        """The uuid of the disk that it is known by, met in this life or an earlier one; empty: none, or in doubt."""
        return b"" if node_id in self._doubts else self._book.disk_of(node_id)

    def lost_frames(self, node_id: NodeId) -> None:
        """The peer lacks committed frames that it had acknowledged: its disk is not to be trusted."""
        if self._book.mark_lost_frames(self._member(node_id)):
            self._save()
        self._set_doubt(node_id, f"{node_id} lost frames that it had acknowledged and that were committed")

    def set_may_found(self, may_found: bool) -> None:
        self.may_found = may_found
        self._listener().may_found(may_found)

    def tell_all(self) -> None:
        """To a replica that has just taken the place of another."""
        listener = self._listener()
        listener.may_found(self.may_found)
        for peer in sorted(self._doubts):
            listener.doubt(peer)

    def _member(self, node_id: NodeId) -> Member:
        return self.members.get(node_id) or Member(node_id, "")

    def _set_doubt(self, node_id: NodeId, doubt: str) -> None:
        if self._doubts.get(node_id) != doubt:
            self._doubts[node_id] = doubt
            logger.error(
                "a member is not what it was; no quorum rests on it",
                extra={"group": self.group, "peer": node_id, "why": doubt},
            )
            self._listener().doubt(node_id)

    def _end_doubt(self, node_id: NodeId) -> None:
        if self._doubts.pop(node_id, None) is not None:
            logger.info("a member is what it should be again", extra={"group": self.group, "peer": node_id})
            self._listener().trust(node_id)


def start_of(identity: PeerIdentity) -> NodeStart:
    return NodeStart(identity.node_uuid, identity.start_count, identity.start_nonces)


def _start_in(met: Mapping[NodeId, PeerIdentity], node_id: NodeId) -> NodeStart | None:
    identity = met.get(node_id)
    return start_of(identity) if identity is not None else None

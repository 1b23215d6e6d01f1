"""The peers of a node: those that it dials, those with an accepted hello, and the last word of each about itself.

A node dials the members of all its groups, by the groups' own logs. If a group's log does not name this node yet, the
peers of the configuration are asked. Each group judges a peer's disk for itself (peer_trust.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from dledger.common.config import split_address
from dledger.common.errors import Code, ConfigError, PeerRefused, quoted
from dledger.common.types import Member, NodeId, NodeStart
from dledger.node.peer_book import PeerBook
from dledger.node.peer_trust import PeerTrust, TrustListener, start_of
from dledger.transport.transport_api import PeerIdentity, Transport

logger = logging.getLogger(__name__)

MAX_STRANGERS = 16


class Peers:
    """The peers of one node. ``founding_group`` is the one that is founded from ``configured``.

    ``told_cluster_id`` is the cluster's id as far as any log here says it, committed or not; or empty. ``is_new`` says
    whether the founding group's log is empty. ``save`` makes the book durable.
    """

    def __init__(
        self,
        node_id: NodeId,
        configured: Mapping[NodeId, str],
        *,
        founding_group: str,
        book: PeerBook,
        transport: Transport[Any],
        told_cluster_id: Callable[[], str],
        is_new: Callable[[], bool],
        save: Callable[[], object],
    ) -> None:
        self._node_id = node_id
        self._configured = configured
        self._founding_group = founding_group
        self._book = book
        self._transport = transport
        self._told_cluster_id = told_cluster_id
        self._is_new = is_new
        self._save = save
        self._groups: dict[str, PeerTrust] = {}
        self._strangers: dict[NodeId, str] = {}
        self._targets: dict[NodeId, str] = {}
        self._is_dialing = False
        self._met: dict[NodeId, PeerIdentity] = {}
        self._missing_said: list[NodeId] = []

    # Groups ------------------------------------------------------------------------------------------------------

    def add_group(self, group: str, listener: Callable[[], TrustListener]) -> PeerTrust:
        """``listener`` gives the group's present replica. ``follow_members`` has to follow."""
        is_founding = group == self._founding_group
        trust = self._groups[group] = PeerTrust(
            group,
            self._node_id,
            self._configured if is_founding else {},
            book=self._book.of(group),
            listener=listener,
            save=self._save,
        )
        return trust

    def remove_group(self, group: str) -> None:
        """The group is closed here for good: nothing of it is known any more."""
        if self._groups.pop(group, None) is not None:
            self._book.forget_group(group)
            self._save()
            self._forget_gone()
            self._dial()

    def trust(self, group: str) -> PeerTrust:
        return self._groups[group]

    def follow_members(self, group: str, members: Sequence[Member], *, is_committed: bool) -> None:
        """What the log of ``group`` says of its members. ``is_committed``: nobody can take it back."""
        self._groups[group].follow_members(members, self._met, self._strangers, is_committed=is_committed)
        if is_committed:
            self._forget_gone()
        self._dial()

    def _forget_gone(self) -> None:
        """Forgets peers that no group expects any more: the next node with one of their ids is another."""
        for gone in [each for each in self._met if each not in self._strangers and not self._is_expected(each)]:
            del self._met[gone]

    def _is_expected(self, node_id: NodeId) -> bool:
        return any(each.expects(node_id) for each in self._groups.values())

    # The peers to dial -------------------------------------------------------------------------------------------

    def _dial(self) -> None:
        addresses = dict(self._strangers)
        for group in self._groups.values():
            addresses.update(group.addresses)
        founding = self._groups.get(self._founding_group)
        if founding is not None:  # a cluster that moved as a whole: the other groups' logs may not know it
            addresses.update(founding.addresses)
        addresses.pop(self._node_id, None)
        if addresses != self._targets:
            self._targets = addresses
            if self._is_dialing:
                self._transport.set_peers(dict(addresses))

    def start(self) -> None:
        """The transport is there: dials, from now on."""
        self._is_dialing = True
        self._judge_founding()
        self._transport.set_peers(dict(self._targets))

    def follow_leader(self, group: str, leader_id: NodeId) -> None:
        """Notes the leader of the group, or nobody. A stranger has something to say as long as some group hears no
        leader, or that stranger leads."""
        self._groups[group].leader_id = leader_id
        leaders = {each.leader_id for each in self._groups.values()}
        if NodeId("") not in leaders and self._strangers.keys() - leaders:
            self._strangers = {each: at for each, at in self._strangers.items() if each in leaders}
            self._dial()

    def _admit_stranger(self, identity: PeerIdentity) -> bool:
        """Whether a node unknown to all logs here may speak nevertheless. Members may have come while this node was
        away: the leader knows them, and this node does not. So while it is cut off from the leader of a group, it hears
        any node of its cluster. It also hears a node if it knew that node's disk before its log was lost. Votes and
        logs of such a node are for raft/ and the chain to guard, as always."""
        if all(self._hears_leader(each) for each in self._groups.values()):
            return False
        cluster_id = self._told_cluster_id() or self._cluster_id_of_configured()
        is_of_us = bool(cluster_id) and identity.cluster_id == cluster_id
        is_known = self._book.has_disk(identity.node_id, identity.node_uuid)
        if (
            not (is_of_us or is_known)
            or not _is_address(identity.peer_address)
            or len(self._strangers) >= MAX_STRANGERS
        ):
            return False
        self._strangers[identity.node_id] = identity.peer_address
        self._dial()
        return True

    def _hears_leader(self, group: PeerTrust) -> bool:
        leader_id = group.leader_id
        return leader_id == self._node_id or (bool(leader_id) and self._transport.is_connected(leader_id))

    def _cluster_id_of_configured(self) -> str:
        """By the word of the peers of the configuration. A node with an empty log, new or wiped, has nothing else to go
        by when the present leader came after that configuration was written."""
        told = (met.cluster_id for each, met in self._met.items() if each in self._configured and met.cluster_id)
        return next(told, "")

    # Hellos ------------------------------------------------------------------------------------------------------

    def check(self, identity: PeerIdentity, cluster_id: str) -> None:
        """Judges a hello. Raises PeerRefused for a node of another cluster, for an unknown one, and for one with our
        own id or a connected node's. A peer with another disk than before may speak, but no quorum rests on it.

        ``cluster_id``: ours if it is known for sure, else empty.
        """
        node_id = identity.node_id
        if node_id == self._node_id:
            raise PeerRefused(
                f"{node_id!r} is the id of the node that was asked; check --id and the addresses",
                code=Code.UNEXPECTED_MEMBER,
            )
        if identity.cluster_id and cluster_id and identity.cluster_id != cluster_id:
            raise PeerRefused(
                f"{node_id} belongs to cluster {identity.cluster_id}, {self._node_id} to {cluster_id}: "
                "check its --peers and its data directory",
                code=Code.UNKNOWN_CLUSTER,
            )
        if node_id not in self._targets and not self._admit_stranger(identity):
            raise PeerRefused(
                f"{quoted(node_id)} is not one of the other members of this cluster: add it, or check its --id and the "
                "cluster that its --peers or --join name",
                code=Code.UNKNOWN_MEMBER,
            )
        self._check_impostor(identity)
        self._meet(identity)

    def _check_impostor(self, identity: PeerIdentity) -> None:
        """Two processes under one id: the connected one stays, unless a group doubts it and none doubts the other."""
        node_id, known = identity.node_id, self._met.get(identity.node_id)
        if known is None or start_of(known) == start_of(identity) or not self._transport.is_connected(node_id):
            return
        groups = self._groups.values()
        is_in_doubt = any(each.is_in_doubt(node_id) for each in groups)
        if not is_in_doubt or any(each.doubt_of(identity) is not None for each in groups):
            raise PeerRefused(
                f"a node {node_id} is connected already; stop one of the two, or give it another --id",
                code=Code.UNEXPECTED_MEMBER,
            )

    def _meet(self, identity: PeerIdentity) -> None:
        before = self._met.get(identity.node_id)
        self._met[identity.node_id] = identity
        for group in self._groups.values():
            group.meet(identity, before)
        self._judge_founding()

    def _judge_founding(self) -> None:
        missing = self.founders_missing
        founding = self._groups.get(self._founding_group)
        if founding is None:
            return
        if self._is_new() and missing != self._missing_said:
            self._missing_said = missing
            if missing:
                logger.info("the log is empty: waiting until all founders have met", extra={"missing": missing})
            else:
                logger.info("all founders have met")
        founding.set_may_found(not missing)

    @property
    def founders_missing(self) -> list[NodeId]:
        """The configured nodes that this node has not met yet, or not as new as itself. While there is one, an empty
        log may be a lost one. A majority of emptied disks would found another cluster beside the former."""
        return [
            each
            for each in sorted(self._configured)
            if each != self._node_id and not ((met := self._met.get(each)) is not None and met.is_new)
        ]

    def known_peers(self, group: str) -> AbstractSet[NodeId]:
        """The nodes that the group may ask: its members, strangers of the same cluster, and nodes met in an earlier
        life."""
        trust = self._groups[group]
        return (trust.addresses.keys() | self._strangers.keys() | trust.known) - {self._node_id}

    def identity_of(self, node_id: NodeId) -> PeerIdentity | None:
        """What it last said of itself."""
        return self._met.get(node_id)

    def start_of(self, node_id: NodeId) -> NodeStart | None:
        """The node's disk and its present start, by its own word; None before its first hello."""
        identity = self._met.get(node_id)
        return start_of(identity) if identity is not None else None


def _is_address(address: str) -> bool:
    try:
        split_address(address)
    except ConfigError:
        return False
    return True

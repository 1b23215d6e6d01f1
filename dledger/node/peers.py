"""Whom a node speaks with, and what it holds of them: who may connect, with which disk, and on whom no quorum may rest.

The members are the log's; a node that its log does not know (yet) asks those of its configuration. Doubt follows the
disk (node/peer_book.py): whoever is not what it was gets everything, and no quorum rests on it, until the disk that
is known comes back or the members admit the one it has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Protocol

from dledger.common.config import split_address
from dledger.common.errors import Code, ConfigError, PeerRefused, quoted
from dledger.common.types import Member, NodeId, NodeStart
from dledger.log.frame.log_snapshot import LogSnapshot
from dledger.node.peer_book import PeerBook
from dledger.transport.transport_api import PeerIdentity, Transport

logger = logging.getLogger(__name__)

MAX_STRANGERS = 16


class HasState(Protocol):
    """A log, also one that cannot be opened yet."""

    @property
    def state(self) -> LogSnapshot: ...


class Judged(Protocol):
    """A replica's roster, as far as doubts are concerned."""

    @property
    def log(self) -> HasState: ...

    def doubt(self, peer: NodeId) -> None:
        """No quorum rests on ``peer`` from now on."""
        ...

    def may_found(self, may_found: bool) -> None:
        """Whether this node, while its log is empty, may take part in founding a cluster."""
        ...

    def trust(self, peer: NodeId) -> None:
        """``peer`` is what it was: what it acknowledges from now on counts."""
        ...

    def forget(self, peer: NodeId) -> None:
        """``peer`` has another disk: nothing of what it acknowledged before counts."""
        ...


class Acquaintances:
    """Of one node in one group."""

    def __init__(
        self,
        node_id: NodeId,
        configured: Mapping[NodeId, str],
        *,
        book: PeerBook,
        transport: Transport[Any],
        roster: Judged,
        save: Callable[[], object],
    ) -> None:
        self._node_id = node_id
        self._configured = configured
        self._book = book
        self._transport = transport
        self._roster = roster
        self._save = save
        self._members: dict[NodeId, Member] = {}
        self._leaving: dict[NodeId, str] = {}
        """Members that a change removes which is not committed yet: they are to hear of it, and may be back."""
        self._strangers: dict[NodeId, str] = {}
        self._leader_id = NodeId("")
        self._targets: dict[NodeId, str] = {}
        self._is_dialing = False
        self._met: dict[NodeId, PeerIdentity] = {}
        self._doubts: dict[NodeId, str] = {}
        self._missing_said: list[NodeId] = []

    # Whom to speak with ------------------------------------------------------------------------------------------

    def follow_members(self, members: Sequence[Member], *, is_committed: bool) -> None:
        """What the log says of the members; ``is_committed``: nobody can take it back."""
        known, self._members = self._members, {member.id: member for member in members}
        if is_committed:
            self._leaving.clear()
            self._settle()
        else:
            self._leaving |= {each.id: each.peer_address for each in known.values() if each.id not in self._members}
        for identity in list(self._met.values()):
            self._judge(identity)
        for member in members:
            if member.id not in self._met and self._book.has_lost_frames(member):
                self._set_doubt(member.id, f"{member.id} lost frames that were committed")
        self._dial()

    def _settle(self) -> None:
        """Takes what the members say for good: whom they admit with which disk, and who is gone."""
        expected = {*self._members, *self._configured_peers()}
        for gone in self._met.keys() - expected - self._strangers.keys():
            del self._met[gone]
            if self._doubts.pop(gone, None) is not None:
                self._roster.trust(gone)  # whoever has the id next is another
        changed = [self._book.admit(member, self.start_of(member.id)) for member in self._members.values()]
        changed.append(self._book.keep_only(expected))
        if any(changed):
            self._save()

    def _configured_peers(self) -> Mapping[NodeId, str]:
        """A member asks those that its log names; the configuration is from before."""
        return {} if self._node_id in self._members else self._configured

    def _dial(self) -> None:
        addresses = {
            **self._strangers,
            **self._configured_peers(),
            **self._leaving,
            **{member.id: member.peer_address for member in self._members.values()},
        }
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

    def follow_leader(self, leader_id: NodeId) -> None:
        """Who leads, or nobody. Other strangers than the leader have nothing more to say."""
        self._leader_id = leader_id
        if leader_id and self._strangers.keys() - {leader_id}:
            self._strangers = {each: at for each, at in self._strangers.items() if each == leader_id}
            self._dial()

    def _admit_stranger(self, identity: PeerIdentity) -> bool:
        """Whether one that this log does not know may speak nevertheless. A node that was away while members came is
        known to the leader and does not know it: cut off from any leader, it hears whoever is of its cluster, or has a
        disk that it knew before its log lost who that is. Its vote, and its log, are for raft/ and the chain to guard,
        as always."""
        if self._leader_id == self._node_id or (self._leader_id and self._transport.is_connected(self._leader_id)):
            return False
        cluster_id = self._roster.log.state.cluster_id or self._told_cluster_id()
        is_of_us = bool(cluster_id) and identity.cluster_id == cluster_id
        is_known = self._book.disk_of(identity.node_id) == identity.node_uuid
        if (
            not (is_of_us or is_known)
            or not _is_address(identity.peer_address)
            or len(self._strangers) >= MAX_STRANGERS
        ):
            return False
        self._strangers[identity.node_id] = identity.peer_address
        self._dial()
        return True

    def _told_cluster_id(self) -> str:
        """By those of the configuration: what a node with an empty log, new or wiped, has to go by when whoever leads
        came after that was written."""
        told = (met.cluster_id for each, met in self._met.items() if each in self._configured and met.cluster_id)
        return next(told, "")

    # Hellos ------------------------------------------------------------------------------------------------------

    def check(self, identity: PeerIdentity, cluster_id: str) -> None:
        """Judges a hello. Raises PeerRefused for a node of another cluster, an unknown one, or one with our own id, or
        with the id of one that is connected; one that is not what it was may speak, but no quorum rests on it.

        ``cluster_id``: the one that is ours for sure, or empty.
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
                f"{quoted(node_id)} is not one of the other members of this cluster: add it, or check --id and --peers",
                code=Code.UNKNOWN_MEMBER,
            )
        self._check_impostor(identity)
        self._meet(identity)

    def _check_impostor(self, identity: PeerIdentity) -> None:
        """Two processes under one id: the one that is connected stays, unless it is in doubt and the other is not."""
        node_id, known = identity.node_id, self._met.get(identity.node_id)
        if known is None or _start(known) == _start(identity) or not self._transport.is_connected(node_id):
            return
        if node_id not in self._doubts or self._doubt_of(identity) is not None:
            raise PeerRefused(
                f"a node {node_id} is connected already; stop one of the two, or give it another --id",
                code=Code.UNEXPECTED_MEMBER,
            )

    def _meet(self, identity: PeerIdentity) -> None:
        known = self._met.get(identity.node_id)
        had_another_disk = known is not None and known.node_uuid != identity.node_uuid
        was_in_doubt = identity.node_id in self._doubts
        if had_another_disk or (was_in_doubt and known is not None and _start(known) != _start(identity)):
            self._roster.forget(identity.node_id)
        self._met[identity.node_id] = identity
        self._judge(identity)
        self._judge_founding()

    def _judge_founding(self) -> None:
        missing = self.founders_missing
        if self._roster.log.state.last.position == 0 and missing != self._missing_said:
            self._missing_said = missing
            logger.info("nothing is in the log; founders not met as new as this one", extra={"missing": missing})
        self._roster.may_found(not missing)

    @property
    def founders_missing(self) -> list[NodeId]:
        """Those of the configuration that this node has not met as new as itself. Until there is none an empty log may
        be one that was lost: a majority of emptied disks would found another cluster beside the one that was."""
        return [
            each
            for each in sorted(self._configured)
            if each != self._node_id and not ((met := self._met.get(each)) is not None and met.is_new)
        ]

    def known_peers(self) -> AbstractSet[NodeId]:
        """Whom it dials, members and strangers of the same cluster, and whom it met in an earlier life."""
        return (self._targets.keys() | self._book.node_ids) - {self._node_id}

    def identity_of(self, node_id: NodeId) -> PeerIdentity | None:
        """What it last said of itself."""
        return self._met.get(node_id)

    def start_of(self, node_id: NodeId) -> NodeStart | None:
        """Which disk it has, and which start of it this is, by its own word; None before it ever said hello."""
        identity = self._met.get(node_id)
        return _start(identity) if identity is not None else None

    def disk_of(self, node_id: NodeId) -> bytes:
        """The uuid of the disk that it is known by, met in this life or an earlier one; empty: none, or in doubt."""
        return b"" if node_id in self._doubts else self._book.disk_of(node_id)

    # Doubt -------------------------------------------------------------------------------------------------------

    def lost_frames(self, node_id: NodeId) -> None:
        """It does not have what it acknowledged, and that was committed: its disk is not to be trusted."""
        if self._book.mark_lost_frames(self._member(node_id)):
            self._save()
        self._set_doubt(node_id, f"{node_id} lost frames that it had acknowledged and that were committed")

    def _member(self, node_id: NodeId) -> Member:
        return self._members.get(node_id) or Member(node_id, "")

    def _doubt_of(self, identity: PeerIdentity) -> str | None:
        return self._book.doubt(self._member(identity.node_id), _start(identity))

    def _judge(self, identity: PeerIdentity) -> None:
        node_id = identity.node_id
        doubt = self._doubt_of(identity)
        if doubt is not None:
            self._set_doubt(node_id, doubt)
            return
        if self._doubts.pop(node_id, None) is not None:
            logger.info("a member is what it should be again", extra={"peer": node_id})
            self._roster.trust(node_id)
        is_expected = node_id in self._members or node_id in self._configured_peers()
        if is_expected and self._book.remember(self._member(node_id), _start(identity)):
            self._save()

    def _set_doubt(self, node_id: NodeId, doubt: str) -> None:
        if self._doubts.get(node_id) != doubt:
            self._doubts[node_id] = doubt
            logger.error("a member is not what it was; no quorum rests on it", extra={"peer": node_id, "why": doubt})
            self._roster.doubt(node_id)


def _start(identity: PeerIdentity) -> NodeStart:
    return NodeStart(identity.node_uuid, identity.start_count, identity.start_nonces)


def _is_address(address: str) -> bool:
    try:
        split_address(address)
    except ConfigError:
        return False
    return True

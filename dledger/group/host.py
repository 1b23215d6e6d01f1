"""What a replica asks of the node it lives in."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

from dledger.common.errors import DLedgerError
from dledger.common.types import Member, NodeId, NodeStart, Role, Term
from dledger.log.log_api import Damaged
from dledger.raft.messages import Message


class Host(Protocol):
    def send(self, peer: NodeId, message: Message) -> bool: ...

    def is_connected(self, peer: NodeId) -> bool: ...

    def messages_dropped(self, peer: NodeId) -> int:
        """How many were not sent to ``peer``: not connected, or its buffer full."""
        ...

    def may_spread(self) -> bool:
        """Whether a handover may begin now that is for an even spread of leaders alone. True: it counts as begun."""
        ...

    def cluster_id_or_new(self, group: str) -> str:
        """What the no-op of a leader of ``group`` says. Only the founding group's first leader mints one."""
        ...

    def client_address(self, node_id: NodeId) -> str:
        """Where clients reach it; empty when unknown."""
        ...

    def on_role(self, group: str, role: Role, term: Term, leader_id: NodeId) -> None: ...

    def known_peers(self, group: str) -> AbstractSet[NodeId]:
        """The nodes that the group may ask: its members, strangers of the same cluster, and nodes met in an earlier
        life."""
        ...

    def start_of(self, peer: NodeId) -> NodeStart | None:
        """The disk of ``peer`` and its present start, by its own word; None before its first hello."""
        ...

    def disk_of(self, group: str, node_id: NodeId) -> bytes:
        """The uuid of the disk that the group knows ``node_id`` by, a peer or this node; empty: none, or in doubt."""
        ...

    async def keep_peers(self) -> None:
        """What is known of the peers by now is durable when it returns. Raises DISK_FULL or DISK_ERROR."""
        ...

    def on_members(self, group: str, members: Sequence[Member], *, is_committed: bool) -> None:
        """The log's last word on the members is another one: a change was appended, or taken back; or it is committed
        now."""
        ...

    def on_lost_frames(self, group: str, peer: NodeId) -> None:
        """``peer`` lacks committed frames that it had acknowledged."""
        ...

    async def owe_catch_up(self, group: str) -> None:
        """Notes a debt before a cut of frames that this node may have acknowledged and that may be committed: durable
        when it returns. Raises DISK_FULL or DISK_ERROR."""
        ...

    def on_caught_up(self, group: str) -> None:
        """The debt is settled, be it from a cut or from an unclean stop without fsync. When that is durable the replica
        is told (``on_debt_settled``)."""
        ...

    def on_tail_known(self, group: str) -> None:
        """After a cut by a start, the others' frames behind the end of the log are here, and durable."""
        ...

    def on_stuck(self, group: str, why: Damaged) -> None:
        """The leader cannot go on with this log while it is damaged there, and nobody has a good copy: the replica is
        to ``step_aside``."""
        ...

    def on_failure(self, group: str, failure: DLedgerError) -> None:
        """The replica stopped for good."""
        ...

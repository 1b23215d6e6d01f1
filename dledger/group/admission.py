"""Admission: whether this node may take an append or answer a read now, and with which error it refuses."""

from __future__ import annotations

from typing import Protocol

from dledger.common.config import NodeConfig
from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import DiskState, NodeId, Role
from dledger.group.host import Host
from dledger.log.log_api import Log
from dledger.raft.messages import NOBODY
from dledger.raft.raft_node import RaftNode


class Asked(Protocol):
    """The replica, as far as it matters here."""

    config: NodeConfig
    core: RaftNode
    log: Log
    role: Role
    leader_id: NodeId
    failure: DLedgerError | None
    is_stopping: bool

    def now_ms(self) -> float: ...


class Room(Protocol):
    """The disk's, as the DiskWatch sees it."""

    @property
    def state(self) -> DiskState: ...

    def check_room(self) -> None: ...


class Admission:
    def __init__(self, asked: Asked, host: Host, room: Room) -> None:
        self._asked = asked
        self._host = host
        self._room = room

    def check_reader(self) -> None:
        """Raises NOT_LEADER or SHUTTING_DOWN unless this node may answer linearizable reads, and what ended the group
        here."""
        asked = self._asked
        if asked.failure is not None:
            raise error(asked.failure.code, str(asked.failure))
        if asked.is_stopping:
            raise error(Code.SHUTTING_DOWN, "the node is stopping; ask another")
        if asked.role is not Role.LEADER:
            raise self.not_leader()

    def check_leader(self) -> None:
        """Raises NOT_LEADER, LEADER_TRANSFERRING or SHUTTING_DOWN unless this node takes appends."""
        self.check_reader()
        leadership = self._asked.core.leadership
        if leadership is None:
            raise self.not_leader()  # the core knows of a higher term already; its Persist is under way
        if leadership.transfer is not None:
            raise error(Code.LEADER_TRANSFERRING, "the leadership is being handed over; try again after a moment")

    def check_room(self) -> None:
        """Raises DISK_FULL while the disk has too little room for appends."""
        self._room.check_room()

    def not_leader(self) -> DLedgerError:
        """NOT_LEADER, with the leader's id and address."""
        asked = self._asked
        leader_id = asked.leader_id if asked.leader_id != asked.config.id else NOBODY
        address = self._host.client_address(leader_id) if leader_id else ""
        hint = f"ask {leader_id} at {address}" if address else "no leader is known yet; try again after a moment"
        return error(
            Code.NOT_LEADER, f"{asked.config.id} is not the leader; {hint}", leader_id=leader_id, leader_address=address
        )

    def not_ready(self) -> DLedgerError:
        """LEADER_NOT_READY: nothing is committed in the leader's term yet, or no quorum says that it still leads; and
        why."""
        own = "its disk is full" if self._room.state is DiskState.FULL else ""
        why = "; ".join(filter(None, (own, self.why_stalled())))
        is_ready = self._asked.core.is_ready
        text = "no quorum confirms that this node leads" if is_ready else "the leader has not committed in its term yet"
        return error(Code.LEADER_NOT_READY, f"{text}{f': {why}' if why else ''}; try again after a moment")

    def why_stalled(self) -> str:
        """Why nothing is committed, as far as a leader knows: the members that are away, or full; empty when it knows
        no reason."""
        leadership = self._asked.core.leadership
        if leadership is None:
            return ""
        last, now_ms = self._asked.log.last.position, self._asked.now_ms()
        if leadership.fit_quorum(last, now_ms):
            return ""
        lacks = leadership.lacks(last, now_ms)
        return "; ".join(f"{peer} {lack.why}" for peer, lack in lacks.items() if lack is not None)

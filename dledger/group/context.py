"""What the parts of one group's driver share. ``Replica`` is it; the parts see no more of it than this."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from dledger.common.config import NodeConfig
from dledger.common.errors import Code, DLedgerError
from dledger.common.types import NodeId, NodeStart, Position, Role, Term
from dledger.group.admission import Admission
from dledger.group.machine_link import MachineLink
from dledger.log.frame.frame import Frame
from dledger.log.log_api import Damaged, Log
from dledger.metrics.group import GroupMetrics
from dledger.raft.messages import Append, Message
from dledger.raft.raft_node import RaftNode


class GroupContext(Protocol):
    config: NodeConfig
    group: str
    log: Log
    core: RaftNode
    metrics: GroupMetrics
    admission: Admission
    machine: MachineLink
    role: Role
    """As the shell has executed it: the core may be a ``Persist`` ahead."""
    term: Term
    """The role's."""

    def now_s(self) -> float:
        """The loop's clock: monotonic, virtual in a simulation."""
        ...

    def now_ms(self) -> float: ...

    def wall_clock_ms(self) -> int:
        """Since the epoch: for the frames' timestamps, and their age."""
        ...

    def send(self, peer: NodeId, message: Message) -> bool:
        """Behind every effect that still waits for a ``Persist``. False: dropped."""
        ...

    def append_message(self, term: Term, frames: Sequence[Frame]) -> Append:
        """The APPEND of ``frames``: the same object for every follower that gets the same, so it is encoded once."""
        ...

    def is_connected(self, peer: NodeId) -> bool: ...

    def may_spread(self) -> bool:
        """As ``Host.may_spread``."""
        ...

    async def owe_catch_up(self) -> None:
        """Notes a debt, durably, before a cut of frames that this node may have acknowledged and that may be committed.
        The node does not vote until a leader has caught it up, nor after a restart. Raises DISK_FULL or DISK_ERROR."""
        ...

    def start_of(self, peer: NodeId) -> NodeStart | None:
        """The disk of ``peer`` and its present start, by its own word; None before its first hello."""
        ...

    def disk_of(self, node_id: NodeId) -> bytes:
        """The uuid of the disk that ``node_id``, a peer or this node, is known by; empty: none, or it is in doubt."""
        ...

    async def keep_peers(self) -> None:
        """What is known of the peers by now is durable when it returns. Raises DISK_FULL or DISK_ERROR."""
        ...

    def on_lost_frames(self, peer: NodeId) -> None:
        """``peer`` lacks committed frames that it had acknowledged: no quorum rests on it any more."""
        ...

    def on_message(self, sender: NodeId, message: Message) -> None:
        """As if it arrived now."""
        ...

    def exclusive(self) -> AbstractAsyncContextManager[None]:
        """Holds back every message, timer and effect while the log is being cut."""
        ...

    def run_effects(self) -> None:
        """Does what the core wants done now."""
        ...

    @property
    def commit_index(self) -> int:
        """The last record known to be committed; −1 when there is none."""
        ...

    async def confirm_leadership(self) -> None:
        """Returns once a quorum has said, since the call, that no other node leads. Awaited before a caller is told
        that nothing is left to be done. Raises NOT_LEADER, LEADER_NOT_READY."""
        ...

    def cluster_id_or_new(self) -> str: ...

    def on_appended(self, frames: Sequence[Frame]) -> None:
        """Frames were written at the end of the log, by this leader or from ours."""
        ...

    def on_append_refused(self, refusal: DLedgerError) -> None:
        """The disk refused a leader's write; nothing of it is kept."""
        ...

    def on_write_failed(self, refusal: DLedgerError) -> None:
        """The log refused frames for good: this node stops."""
        ...

    def on_disk_full(self) -> None:
        """The device had no room for what was to be written."""
        ...

    def on_blocked(self, why: Damaged) -> None:
        """A leader's push needs damaged frames, and has to wait. If no node has a good copy, or they were trimmed, it
        waits in vain: the replica then steps aside."""
        ...

    def on_beginning_untold(self) -> None:
        """A follower needs a RESET, and this leader cannot read the small state that its own log begins with."""
        ...

    def on_truncated(self, after: Position) -> None: ...

    def on_reset(self) -> None:
        """The log was begun anew: all before its start is committed, and none of it is here."""
        ...

    def on_leader_commit(self, position: Position) -> None:
        """The leader said how far it has committed, whether or not all of it is here."""
        ...

    def guard(self, work: Callable[[], None]) -> None:
        """Does ``work``, and then carries out the core's effects. Any exception stops this node and is seen."""
        ...

    def fail(self, code: Code, message: str) -> None:
        """This node cannot go on in this group: it says so and stops."""
        ...

    def watch_task(self, task: asyncio.Task[None]) -> None:
        """A task of the group ended; an exception in it stops the node."""
        ...

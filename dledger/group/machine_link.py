"""MachineLink: a group's knowledge of the state machine on its log. The machine itself stands above (statemachine/).

::

    keeper ── attach ──▶ MachineLink ── MachineReport, once a second ──▶ the leader's MachineLink
                              │                                                 │ Progress.machine
                              ▼                                                 ▼
                  how far a TRIM may go here                       who is fit to lead; what is confirmed

A group has a state machine when its SETTINGS say so. Of a group without one nothing is asked here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from dledger.common.config import MAX_MACHINE_RECORD_BYTES, NodeConfig
from dledger.common.errors import Code, error
from dledger.common.limited_log import LimitedLog
from dledger.common.types import MAX_INDEX, NodeId, Role
from dledger.group.admission import Admission
from dledger.log.frame.frame import ControlKind, Frame
from dledger.log.log_api import Log
from dledger.raft.messages import NOBODY, MachineReport, Message
from dledger.raft.raft_node import RaftNode
from dledger.raft.replication import MachineProgress
from dledger.raft.state import VoteBlocker

logger = logging.getLogger(__name__)

REPORT_INTERVAL_S = 1.0


class MachineStatus(NamedTuple):
    """Of this node's state machine."""

    next_index: int = 0
    """The first record that is not in its state. 0: none is, or the state is being restored."""
    version: int = 0
    """The latest of the commands that it knows."""
    confirmed_id: int = -1
    """The last confirmed checkpoint with a state that it has, or had on its way here; −1: none."""
    checkpoint_id: int = 0
    digest: bytes = b""
    """Its own, as of the BEGIN of checkpoint ``checkpoint_id``, to which it applied its way. Empty: it has none."""
    is_rebuilding: bool = False
    """Its state was found to differ from the others', and is built anew."""


NO_STATUS = MachineStatus()


class Linked(Protocol):
    """The replica, as far as it matters here."""

    config: NodeConfig
    group: str
    core: RaftNode
    log: Log
    role: Role
    admission: Admission

    def now_s(self) -> float: ...

    def now_ms(self) -> float: ...

    def send(self, peer: NodeId, message: Message) -> bool: ...

    def run_effects(self) -> None: ...

    @property
    def commit_index(self) -> int: ...


class MachineLink:
    def __init__(self, context: Linked) -> None:
        self._context = context
        self._source: Callable[[], MachineStatus] = lambda: NO_STATUS
        self._term_index = 0
        """Of the first record behind the no-op of this leader's term."""
        self._reported: tuple[object, ...] = ()
        """The last report: its receiver, its term and its content."""
        self._next_report_s = 0.0
        self._limited_log = LimitedLog(logger)
        self.is_checkpointing = False
        """This leader writes a checkpoint: it does not give the leadership away of its own accord meanwhile."""

    def attach(self, source: Callable[[], MachineStatus]) -> None:
        """``source`` tells the state machine's status from now on."""
        self._source = source

    @property
    def status(self) -> MachineStatus:
        return self._source()

    @property
    def has_machine(self) -> bool:
        return bool(self._context.log.state.settings.machine)

    # Every node --------------------------------------------------------------------------------------------------

    @property
    def trim_limit(self) -> int:
        """No TRIM beyond this index is written, nor carried out here. It is the BEGIN of a checkpoint that is confirmed
        and in this log. Below 0: none is; the state is being restored, or nothing runs here that would restore it."""
        return self.status.confirmed_id if self.has_machine else MAX_INDEX

    def max_record_bytes(self, frames: Iterable[Frame] = ()) -> int:
        """A state machine's records have a limit of their own, even if the users' is lower. It holds for ``frames``,
        too, when one of these may say that there is a state machine."""
        limit = self._context.config.limits.max_record_bytes
        has_machine = self.has_machine or any(each.header.attributes == ControlKind.SETTINGS for each in frames)
        return max(limit, MAX_MACHINE_RECORD_BYTES) if has_machine else limit

    def check(self) -> None:
        """Called every heartbeat interval."""
        if not self.has_machine:
            return
        context, status = self._context, self.status
        core = context.core
        is_rebuilding = VoteBlocker.STOPPED_MACHINE in core.vote_blockers
        if status.is_rebuilding is not is_rebuilding:
            core.set_may_lead(not status.is_rebuilding, context.now_ms(), VoteBlocker.STOPPED_MACHINE)
            context.run_effects()
        if core.leadership is not None:
            self._tell_leadership()
        else:
            self._report(status)

    def _tell_leadership(self) -> None:
        leadership = self._context.core.leadership
        if leadership is not None:
            leadership.needs_machine = self.has_machine

    def _report(self, status: MachineStatus) -> None:
        core, now_s = self._context.core, self._context.now_s()
        leader = core.leader_id
        if leader in (NOBODY, core.node_id):
            return
        news = (leader, core.term, status.version, status.checkpoint_id, status.digest, status.next_index > 0)
        if news == self._reported and now_s < self._next_report_s:
            return
        self._reported, self._next_report_s = news, now_s + REPORT_INTERVAL_S
        report = MachineReport(
            self._context.group, core.term, status.next_index, status.version, status.checkpoint_id, status.digest
        )
        self._context.send(leader, report)

    # The leader --------------------------------------------------------------------------------------------------

    def begin_term(self, next_index: int) -> None:
        """This node leads, and ``next_index`` is that of the first record behind its no-op."""
        self._term_index = next_index
        self.is_checkpointing = False
        self._tell_leadership()

    def on_report(self, sender: NodeId, report: MachineReport, now_ms: float) -> None:
        next_index = self._context.log.state.next_index
        if report.next_index > next_index:
            fields = {"group": self._context.group, "peer": sender, "next_index": report.next_index}
            what = "a member reports a state of records that were never sent to it"
            self._limited_log.say(logging.ERROR, f"{sender} {what}", self._context.now_s(), what, **fields)
            return
        leadership = self._context.core.hear_follower(sender, report.term, now_ms)
        if leadership is not None:
            behind = self._context.commit_index + 1 - report.next_index
            leadership.followers[sender].machine = MachineProgress(report, max(0, behind), now_ms)

    @property
    def has_caught_up(self) -> bool:
        """Whether this node leads, and its state machine has applied all that was committed before its term."""
        is_ready = self._context.role is Role.LEADER and self._context.core.is_ready
        return is_ready and not self.is_behind

    @property
    def is_serving(self) -> bool:
        """``has_caught_up``, and the group is known to be the log of a state machine."""
        return self.has_caught_up and self.has_machine

    @property
    def is_behind(self) -> bool:
        """Whether the state lacks something of the terms before this leader's."""
        status = self.status
        return status.is_rebuilding or not status.version or status.next_index < self._term_index

    def check_serving(self) -> None:
        """Raises NOT_LEADER, SHUTTING_DOWN, or LEADER_NOT_READY, unless the state here is one to read and to change."""
        self._context.admission.check_reader()
        if not self._context.core.is_ready:
            raise self._context.admission.not_ready()
        if not self.is_serving:
            raise error(
                Code.LEADER_NOT_READY,
                "the state machine of this leader has not caught up yet; try again after a moment",
            )

    @property
    def should_hand_over(self) -> bool:
        """Whether this leader cannot serve, and another may."""
        return self.has_machine and self._context.core.is_ready and self.is_behind

"""The members as this node's log has them. They are kept the same in the core, in the leader's dispatchers, and at the
node. The node dials them and judges their disks (node/peer_trust.py)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dledger.common.types import Durability, NodeId, Position, Role
from dledger.group.change_lines import ChangeLines
from dledger.group.context import GroupContext
from dledger.group.host import Host
from dledger.group.leader.dispatchers import Dispatchers
from dledger.raft.membership import Membership


class Roster:
    def __init__(self, context: GroupContext, host: Host, dispatchers: Dispatchers) -> None:
        self.log = context.log
        self._context = context
        self._core = context.core
        self._host = host
        self._dispatchers = dispatchers
        self._members = context.log.state.members
        self._is_committed = False
        self._lines = ChangeLines(context.group, context.log)

    # The members -------------------------------------------------------------------------------------------------

    def follow_log(self) -> None:
        """The members are what the log's last word says, committed or not; a truncation takes it back."""
        self._lines.tell()
        members, known = self.log.state.members, self._members
        if members is known:
            return
        self._members = members
        if members != known:
            self._core.set_membership(Membership(members), self._context.now_ms())
            self._follow_followers()
            self.tell()

    def on_commit(self, position: Position) -> None:
        if not self._is_committed and self._core.has_all_acknowledged and position >= self.log.state.members_position:
            self.tell()

    def tell(self) -> None:
        """Tells the node the members, at every change and before the start. They count as committed only if this log
        has all that the node acknowledged. Else they may be outdated, and the node must not forget later members for
        them."""
        context = self._context
        self._core.judge_own_disk(context.disk_of(self._core.node_id), context.now_ms())
        core = self._core
        self._is_committed = core.has_all_acknowledged and self.log.state.members_position <= core.commit_position
        self._host.on_members(context.group, self._members, is_committed=self._is_committed)

    def _follow_followers(self) -> None:
        context, leadership = self._context, self._core.leadership
        if leadership is not None and context.role is Role.LEADER and context.term == self._core.term:
            self._dispatchers.follow(leadership, context.term)

    # What is held of them ----------------------------------------------------------------------------------------

    def on_lost_frames(self, peer: NodeId) -> None:
        """``peer`` lost committed frames that it had acknowledged."""
        if self._context.config.durability is not Durability.FSYNC:
            return  # as promised; a node that lost power knows it, and does not vote until it is caught up
        self._host.on_lost_frames(self._context.group, peer)

    def doubt(self, peer: NodeId) -> None:
        """``peer`` is not what it was: no quorum rests on it from now on."""
        self._context.guard(partial(self._core.doubt, peer))

    def may_found(self, may_found: bool) -> None:
        """Whether this node, while its log is empty, may take part in founding a cluster."""
        self._context.guard(lambda: self._core.set_may_found(may_found, self._context.now_ms()))

    def trust(self, peer: NodeId) -> None:
        """``peer`` has its known disk again: its acknowledgements count from now on."""
        self._context.guard(partial(self._compare_anew, self._core.trust, peer))

    def forget(self, peer: NodeId) -> None:
        """``peer`` has another disk: nothing of what it acknowledged before counts."""
        self._context.guard(partial(self._compare_anew, self._core.forget, peer))

    def _compare_anew(self, forget: Callable[[NodeId, float], None], peer: NodeId) -> None:
        forget(peer, self._context.now_ms())
        self._follow_followers()

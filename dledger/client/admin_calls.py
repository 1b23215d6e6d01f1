"""An operator's operations on a running group: leadership, members, settings and retention."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.client.admin_results import MembershipChange, RetentionChange, TrimResult, settings_from_wire
from dledger.client.arguments import (
    check_amount,
    check_flag,
    check_index,
    check_priorities,
    check_text,
)
from dledger.client.leader_calls import LeaderCalls
from dledger.v1 import admin_pb2, raft_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dledger.common.types import GroupSettings


class Admin(LeaderCalls):
    """``log.admin``: the operations of AdminService, as coroutines.

    Each is asked of the leader, and follows the leadership. Until its deadline it waits for obstacles that pass by
    themselves (an election, a handover, another change under way). It returns once its outcome is committed. A refusal
    changed nothing. OutcomeUnknown: the request was made and no answer came. Look at ``log.status()``, or ask again.
    All operations may be asked twice, but for a ``transfer_leadership`` without a target.

    With ``dry_run`` everything is checked as if it were to be done, and nothing is.
    """

    # Leadership -------------------------------------------------------------------------------------------------

    async def transfer_leadership(
        self, to: str | None = None, *, dry_run: bool = False, timeout_ms: float | None = None
    ) -> tuple[str, int]:
        """Hands the leadership to ``to`` (a node's id; None: the least behind). Returns the leader and its term then.

        Raises TransferFailed, UnknownMember, Unavailable, OutcomeUnknown.
        """
        if to is not None:
            check_text("to", to)
        check_flag("dry_run", dry_run)
        request = admin_pb2.TransferLeadershipRequest(group=self._group, target_id=to or "", dry_run=dry_run)
        attempts = self.attempts(timeout_ms, repeatable=to is not None or dry_run)
        answer = await self.ask(lambda admin: admin.TransferLeadership, request, attempts)
        return answer.leader_id, answer.term

    async def set_preferred(
        self, priorities: Mapping[str, int], *, dry_run: bool = False, timeout_ms: float | None = None
    ) -> GroupSettings:
        """Sets which member should lead: the one of the highest priority among the healthy and close ones. Empty: none
        is preferred.

        Replaces the earlier priorities. Raises UnknownMember, InvalidRequest.
        """
        check_priorities(priorities)
        check_flag("dry_run", dry_run)
        preferred = [raft_pb2.PreferredLeader(id=node, priority=each) for node, each in priorities.items()]
        request = admin_pb2.SetPreferredLeadersRequest(group=self._group, preferred=preferred, dry_run=dry_run)
        answer = await self.ask(lambda admin: admin.SetPreferredLeaders, request, self.attempts(timeout_ms))
        return settings_from_wire(answer.settings)

    # Members ----------------------------------------------------------------------------------------------------

    async def add_learner(
        self, node_id: str, peer_address: str = "", *, dry_run: bool = False, timeout_ms: float | None = None
    ) -> MembershipChange:
        """Adds a node that replicates and does not vote. ``peer_address``: host:port for nodes.

        To the group ``meta``: makes it a node of the cluster; it becomes a voter there by itself while there are fewer
        than five. To another group: a node of the cluster; its address may be left out. Raises UnknownMember if it is
        none.
        """
        check_text("peer_address", peer_address)
        _check_member(node_id, dry_run)
        request = admin_pb2.AddLearnerRequest(group=self._group, id=node_id, peer_address=peer_address, dry_run=dry_run)
        attempts = self.attempts(timeout_ms)
        answer = await self.ask(lambda admin: admin.AddLearner, request, attempts)
        return MembershipChange.from_wire(answer.change, may_be_earlier=attempts.left_doubt)

    async def promote(
        self, node_id: str, *, dry_run: bool = False, timeout_ms: float | None = None
    ) -> MembershipChange:
        """Makes a learner a voter. Raises ChangeRefused while it has not caught up, UnknownMember."""
        _check_member(node_id, dry_run)
        request = admin_pb2.PromoteMemberRequest(group=self._group, id=node_id, dry_run=dry_run)
        attempts = self.attempts(timeout_ms)
        answer = await self.ask(lambda admin: admin.PromoteMember, request, attempts)
        return MembershipChange.from_wire(answer.change, may_be_earlier=attempts.left_doubt)

    async def remove(self, node_id: str, *, dry_run: bool = False, timeout_ms: float | None = None) -> MembershipChange:
        """Removes a member, the leader too: it hands over first. Raises ChangeRefused when the quorum would be lost.

        From the group ``meta``: takes the node out of the cluster. Raises ChangeRefused while it is in another group.
        """
        _check_member(node_id, dry_run)
        request = admin_pb2.RemoveMemberRequest(group=self._group, id=node_id, dry_run=dry_run)
        attempts = self.attempts(timeout_ms)
        answer = await self.ask(lambda admin: admin.RemoveMember, request, attempts)
        return MembershipChange.from_wire(answer.change, may_be_earlier=attempts.left_doubt)

    async def readmit(
        self, node_id: str, *, dry_run: bool = False, timeout_ms: float | None = None
    ) -> MembershipChange:
        """Takes a member with another disk, or with an older state of its disk, as a learner again; ``promote`` it
        then."""
        _check_member(node_id, dry_run)
        request = admin_pb2.ReadmitMemberRequest(group=self._group, id=node_id, dry_run=dry_run)
        attempts = self.attempts(timeout_ms)
        answer = await self.ask(lambda admin: admin.ReadmitMember, request, attempts)
        return MembershipChange.from_wire(answer.change, may_be_earlier=attempts.left_doubt)

    # Space ------------------------------------------------------------------------------------------------------

    async def trim(self, before: int, *, dry_run: bool = False, timeout_ms: float | None = None) -> TrimResult:
        """Drops the records before index ``before`` from every node, by whole segments: what is kept may begin earlier.

        They cannot be had back. Raises InvalidRequest, OutOfRange.
        """
        check_index(before)
        check_flag("dry_run", dry_run)
        request = admin_pb2.TrimRequest(group=self._group, before_index=before, dry_run=dry_run)
        answer = await self.ask(lambda admin: admin.Trim, request, self.attempts(timeout_ms))
        return TrimResult(answer.first_index, answer.trimmed_records, answer.trimmed_bytes)

    async def set_retention(
        self,
        *,
        max_age_ms: int | None = None,
        max_bytes: int | None = None,
        dry_run: bool = False,
        timeout_ms: float | None = None,
    ) -> RetentionChange:
        """What is trimmed by itself: records older than ``max_age_ms``, and the oldest of a log above ``max_bytes``.

        0: no such limit; None: as it is. Says what the next trim takes.
        """
        for name, limit in (("max_age_ms", max_age_ms), ("max_bytes", max_bytes)):
            if limit is not None:
                check_amount(name, limit)
        check_flag("dry_run", dry_run)
        request = admin_pb2.SetRetentionRequest(
            group=self._group, max_age_ms=max_age_ms, max_bytes=max_bytes, dry_run=dry_run
        )
        answer = await self.ask(lambda admin: admin.SetRetention, request, self.attempts(timeout_ms))
        return RetentionChange(settings_from_wire(answer.settings), answer.trimmed_records, answer.trimmed_bytes)


def _check_member(node_id: object, dry_run: object) -> None:
    check_text("node_id", node_id)
    check_flag("dry_run", dry_run)

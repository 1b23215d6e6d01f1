"""Members: the members of the group, changed one at a time by MEMBERSHIP frames of its leader (raft/membership.py)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dledger.common.types import Member, NodeId, Position
from dledger.group.context import GroupContext
from dledger.group.leader.appender import Appender
from dledger.group.leader.control_frames import ControlFrames
from dledger.group.leader.settings import Settings
from dledger.group.leader.transfer import LeadershipTransfer
from dledger.log.frame.control import membership_body
from dledger.log.frame.frame import ControlKind
from dledger.raft.fitness import Measure, MemberFacts
from dledger.raft.membership import Membership, plan_add, plan_promote, plan_readmit, plan_remove, with_disks

Plan = Callable[[Membership], Sequence[Member] | None]
"""All members as they are to be, or None when they are so. Raises what stands in the way."""

JudgingPlan = Callable[[Membership, NodeId, NodeId, Mapping[NodeId, MemberFacts], Measure], Sequence[Member] | None]
"""A plan for one node (the first id), by the facts that its leader (the second id) has about all others."""


class Change(NamedTuple):
    """The members after a change, and the position of its committed frame. 0: there is no such frame, as it was a dry
    run, or nothing was to be changed."""

    members: tuple[Member, ...]
    position: Position


class Members:
    """Every method returns once the change is committed, or would be made (``dry_run``). They raise

    * NOT_LEADER, LEADER_NOT_READY, LEADER_TRANSFERRING, SHUTTING_DOWN: ask another node, or again;
    * CHANGE_PENDING: another change is not committed yet;
    * UNKNOWN_MEMBER, UNEXPECTED_ARGUMENT, CHANGE_REFUSED, DISK_FULL, DISK_ERROR: what stands in the way; nothing was
      changed;
    * TERM_CHANGED, WAIT_QUORUM_ACK_TIMEOUT: the change may or may not come to be; asking for it again is safe.
    """

    def __init__(
        self, context: GroupContext, appender: Appender, handover: LeadershipTransfer, settings: Settings
    ) -> None:
        self._context = context
        self._core = context.core
        self._frames = ControlFrames(context, appender, ControlKind.MEMBERSHIP, "change of members")
        self._handover = handover
        self._settings = settings
        self._measure = Measure.of(context.config.limits, context.config.timings)

    async def add(self, node_id: NodeId, peer_address: str, *, dry_run: bool = False) -> Change:
        """As a learner: it gets everything, and does not vote."""
        return await self._change(lambda members: plan_add(members, node_id, peer_address), dry_run=dry_run)

    async def promote(self, node_id: NodeId, *, dry_run: bool = False) -> Change:
        """Makes a learner that has caught up a voter, under the disk it has."""
        return await self._change(self._judged(plan_promote, node_id), dry_run=dry_run)

    async def remove(self, node_id: NodeId, *, dry_run: bool = False) -> Change:
        """A leader that is to remove itself hands the leadership over, and raises NOT_LEADER: ask the new one. A
        removed member is not preferred any more."""
        plan = self._judged(plan_remove, node_id)
        if node_id == self._core.node_id and not dry_run and self._planned(plan) is not None:
            await self._handover.transfer(None)
            raise self._context.admission.not_leader()
        change = await self._change(plan, dry_run=dry_run)
        if not dry_run:
            await self._settings.drop_preference(node_id)
        return change

    async def readmit(self, node_id: NodeId, *, dry_run: bool = False) -> Change:
        """Takes a member with another disk, or with an older state of its disk, as a learner with its present disk."""
        return await self._change(self._judged(plan_readmit, node_id), dry_run=dry_run)

    async def _change(self, plan: Plan, *, dry_run: bool) -> Change:
        planned = self._planned(plan)
        if planned is None and not dry_run:
            await self._context.confirm_leadership()  # another leader may have said otherwise since
            planned = self._planned(plan)
        if planned is not None and not dry_run:
            # An only voter must still know the promoted node if a power loss takes the end of its log.
            await self._context.keep_peers()
            planned = self._planned(plan)
        if planned is None or dry_run:
            return Change(tuple(planned or self._context.log.state.members), Position(0))
        appended = await self._frames.append(membership_body(planned))
        return Change(tuple(planned), Position(appended.base_index))

    def _planned(self, plan: Plan) -> Sequence[Member] | None:
        """What ``plan`` makes of the present members, if they may be changed now."""
        state = self._context.log.state
        self._context.admission.check_leader()
        if not self._core.is_ready:
            raise self._context.admission.not_ready()
        self._core.check_change(state.members_position)
        self._frames.check_free()
        members = plan(Membership(state.members))
        if members is None:
            return None
        return with_disks(members, {each.id: self._context.disk_of(each.id) for each in members})

    def _judged(self, plan: JudgingPlan, node_id: NodeId) -> Plan:
        """A plan for ``node_id``. It rests on this leader's facts about the others when it is made."""
        return lambda members: plan(members, node_id, self._core.node_id, self._facts(), self._measure)

    def _facts(self) -> dict[NodeId, MemberFacts]:
        """What this leader knows of each other member."""
        leadership, context = self._core.leadership, self._context
        if leadership is None:
            return {}
        facts = leadership.facts(context.log.last.position, context.now_ms())
        return {peer: fact._replace(start=context.start_of(peer)) for peer, fact in facts.items()}

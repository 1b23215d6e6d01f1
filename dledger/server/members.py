"""Members: who belongs to the group, changed one at a time by MEMBERSHIP frames of its leader (raft/membership.py)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dledger.errors import Code, error
from dledger.raft.membership import (
    UNHEARD,
    MemberFacts,
    Membership,
    plan_add,
    plan_promote,
    plan_readmit,
    plan_remove,
)
from dledger.server.appender import Appender
from dledger.server.context import GroupContext
from dledger.server.handover import Handover
from dledger.server.quorum_ack_checker import AppendResult
from dledger.storage.control import membership_body
from dledger.storage.frame import ControlKind
from dledger.types import Member, NodeId, Position

logger = logging.getLogger(__name__)

Plan = Callable[[Membership], Sequence[Member] | None]
"""All members as they are to be, or None when they are so. Raises what stands in the way."""


class Change(NamedTuple):
    """The members after a change, and the position of the committed frame that says so; 0: there is no such frame, as
    it was a dry run, or there was nothing to change."""

    members: tuple[Member, ...]
    position: Position


class Members:
    """Every method returns once the change is committed, or would be made (``dry_run``). They raise

    * NOT_LEADER, LEADER_NOT_READY, LEADER_TRANSFERRING, SHUTTING_DOWN: ask another node, or again;
    * CHANGE_PENDING: another change is not committed yet;
    * UNKNOWN_MEMBER, UNEXPECTED_ARGUMENT, CHANGE_REFUSED: what stands in the way; nothing was changed;
    * TERM_CHANGED, WAIT_QUORUM_ACK_TIMEOUT: the change may or may not come to be; asking for it again is safe.
    """

    def __init__(self, context: GroupContext, appender: Appender, handover: Handover) -> None:
        self._context = context
        self._core = context.core
        self._appender = appender
        self._handover = handover
        self._appending: asyncio.Future[AppendResult] | None = None
        """A change that is not in the log yet, or not committed."""

    async def add(self, node_id: NodeId, peer_address: str, *, dry_run: bool = False) -> Change:
        """As a learner: it gets everything, and does not vote."""
        return await self._change(lambda members: plan_add(members, node_id, peer_address), dry_run=dry_run)

    async def promote(self, node_id: NodeId, *, dry_run: bool = False) -> Change:
        """Makes a learner that has caught up a voter, under the disk it has."""
        limits = self._context.config.limits

        def plan(members: Membership) -> Sequence[Member] | None:
            return plan_promote(members, node_id, self._facts().get(node_id, UNHEARD), limits)

        return await self._change(plan, dry_run=dry_run)

    async def remove(self, node_id: NodeId, *, dry_run: bool = False) -> Change:
        """A leader that is to remove itself hands the leadership over, and raises NOT_LEADER: ask the new one."""
        own_id = self._core.node_id

        def plan(members: Membership) -> Sequence[Member] | None:
            return plan_remove(members, node_id, own_id, self._facts())

        if node_id == own_id and not dry_run and self._planned(plan) is not None:
            await self._handover.transfer(None)
            raise self._context.not_leader()
        return await self._change(plan, dry_run=dry_run)

    async def readmit(self, node_id: NodeId, *, dry_run: bool = False) -> Change:
        """Takes a member whose disk is another one, or an older state, as a learner with the disk it has now."""
        own_id = self._core.node_id

        def plan(members: Membership) -> Sequence[Member] | None:
            return plan_readmit(members, node_id, own_id, self._facts())

        return await self._change(plan, dry_run=dry_run)

    async def _change(self, plan: Plan, *, dry_run: bool) -> Change:
        planned = self._planned(plan)
        if planned is None or dry_run:
            return Change(tuple(planned or self._context.log.state.members), Position(0))
        appending = self._appender.append_control(ControlKind.MEMBERSHIP, membership_body(planned))
        self._appending = appending
        appending.add_done_callback(self._appended)
        # A caller that gives up takes nothing back.
        appended = await asyncio.shield(appending)
        return Change(tuple(planned), Position(appended.base_index))

    def _appended(self, appending: asyncio.Future[AppendResult]) -> None:
        self._appending = None
        if not appending.cancelled() and (failure := appending.exception()) is not None:
            logger.warning("a change of the members failed", extra={"group": self._context.group, "why": failure})

    def _planned(self, plan: Plan) -> Sequence[Member] | None:
        """What ``plan`` makes of the present members, if they may be changed now."""
        state = self._context.log.state
        self._context.check_leader()
        self._core.check_change(state.members_position)
        if self._appending is not None:
            raise error(Code.CHANGE_PENDING, "another change of members is not committed yet; try again after a moment")
        return plan(Membership(state.members))

    def _facts(self) -> dict[NodeId, MemberFacts]:
        """What this leader knows of each other member."""
        leadership, last = self._core.leadership, self._context.log.last.position
        if leadership is None:
            return {}
        facts = {}
        for peer, progress in leadership.followers.items():
            start = self._context.start_of(peer)
            facts[peer] = MemberFacts(
                is_connected=self._context.is_connected(peer),
                counts=progress.counts,
                lag_frames=last - progress.match,
                node_uuid=start.node_uuid if start is not None else b"",
                start_count=start.start_count if start is not None else 0,
            )
        return facts

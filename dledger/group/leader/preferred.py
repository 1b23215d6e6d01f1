"""Preferred leaders: the leadership goes to the healthy and close node of the highest priority, when it is safe to
give. A leader with a full disk gives it to a node that takes appends. Three other leaders give it to any fit node. One
cannot tell a follower the state with which the log begins. One has a state machine that has not caught up. One is no
voter. A leader that writes a checkpoint keeps the leadership meanwhile, unless it must go.

A group made at run time has the priorities of ``raft/rendezvous.py``, unless an operator has set others. So the leaders
of many groups spread evenly over the nodes. All groups whose first choice has come back want to go there at once. So a
node begins only a few such handovers a second (``Host.may_spread``).

The leader looks every second, with a full disk whenever it can. A target must have been fit (raft/fitness.py defines
it) for a while without a break. So a node that has just come back, or comes and goes, is left alone. After a failed
handover the leader leads on, and leaves its target alone for a time that doubles with every failure. So appends pay at
most one election timeout for each attempt, and no lagging node is elected. The same holds for a leader with a full disk
and for its targets. A node that took over because this leader could not tell the log's beginning is left alone so too.
Its copy may be damaged as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from dledger.common.config import NodeConfig
from dledger.common.errors import Code, DLedgerError
from dledger.common.types import (
    DEFAULT_GROUP,
    DiskState,
    GroupSettings,
    NodeId,
    Position,
    PreferredLeader,
    Role,
)
from dledger.group.context import GroupContext
from dledger.group.leader.transfer import LeadershipTransfer
from dledger.raft.fitness import Lack
from dledger.raft.rendezvous import ranked

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S = 1.0
HEALTHY_S = 3.0
"""A target must have been eligible for so long."""
RELIEF_S = 1.25
"""A target must have been eligible for so long if the leader's disk is full: that leader takes no appends meanwhile. A
target's disk may have filled up at the same time, and by then the target has said so. (DiskWatch looks every second,
and the next answer to a heartbeat tells.)"""
MIN_BACK_OFF_S = 5.0
MAX_BACK_OFF_S = 300.0

_NOT_THE_TARGETS_FAULT = (Code.LEADER_TRANSFERRING, Code.NOT_LEADER, Code.SHUTTING_DOWN, Code.UNKNOWN_MEMBER)
"""A target that was removed meanwhile is not left alone: its id may come back as another node."""


@dataclass(slots=True)
class BackOff:
    """After a handover to one target failed."""

    wait_s: float
    until_s: float


class Spread:
    """Priorities by which the leaders of many groups spread evenly over the nodes: a function of the voters alone."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._voters: frozenset[NodeId] = frozenset()
        self._settings = GroupSettings()

    def of(self, voters: frozenset[NodeId]) -> GroupSettings:
        if voters != self._voters:
            order = reversed(ranked(self._group, voters))
            chosen = tuple(PreferredLeader(node, priority) for priority, node in enumerate(order, 1))
            self._voters, self._settings = voters, GroupSettings(chosen)
        return self._settings


def is_spread(config: NodeConfig, group: str) -> bool:
    """Whether the group was made at run time. The leaders of the cluster's own groups stay where they were elected."""
    return group not in (config.group, DEFAULT_GROUP)


class PreferredLeaders:
    """Remembers failed handovers over all the terms in which this node leads; forgets a target's failures when it does
    lead."""

    def __init__(self, context: GroupContext, handover: LeadershipTransfer) -> None:
        self._context = context
        self._handover = handover
        self._next_look_s = 0.0
        self._target: NodeId | None = None
        self._eligible_since_s = 0.0
        self._why_not = ""
        self._back_offs: dict[NodeId, BackOff] = {}
        self._transfer: asyncio.Task[None] | None = None
        self._untold: Position | None = None
        """The log's beginning, if this leader could not tell a follower the state there."""
        self._spread = Spread(context.group) if is_spread(context.config, context.group) else None

    def on_beginning_untold(self) -> None:
        """A follower needs the small state that the log begins with, and this leader cannot tell it."""
        self._untold = self._context.log.state.start.position

    @property
    def _cannot_tell(self) -> bool:
        return self._untold == self._context.log.state.start.position

    def check(self) -> None:
        """Called now and then."""
        now_s, is_full = self._context.now_s(), self._context.core.disk is DiskState.FULL
        if self._transfer is not None or (now_s < self._next_look_s and not is_full):
            return
        self._next_look_s = now_s + LOOK_INTERVAL_S
        target = self._find(now_s)
        wait_s = RELIEF_S if is_full else HEALTHY_S
        if target != self._target:
            self._target, self._eligible_since_s = target, now_s
        elif target is not None and now_s >= self._eligible_since_s + wait_s:
            if self._is_urgent or self._context.may_spread():
                self._begin(target)
            else:
                self._next_look_s = now_s  # as soon as it is its turn

    @property
    def _is_urgent(self) -> bool:
        """Whether more than an even spread asks for a handover."""
        context, leadership = self._context, self._context.core.leadership
        is_fit = context.core.disk is not DiskState.FULL and not self._cannot_tell
        votes = leadership is not None and leadership.self_votes
        return bool(context.log.state.settings.preferred) or not (is_fit and votes)

    def stop(self) -> None:
        if self._transfer is not None:
            self._transfer.cancel()

    def _find(self, now_s: float) -> NodeId | None:
        """The node to hand over to, if it stays fit for long enough."""
        context, leadership = self._context, self._context.core.leadership
        settings = self._priorities()
        if context.role is not Role.LEADER or leadership is None or leadership.transfer is not None:
            self._why_not, self._untold = "", None
            return None
        is_full = context.core.disk is DiskState.FULL
        is_to_go = is_full or self._cannot_tell or context.machine.should_hand_over
        own_priority = settings.priority_of(context.core.node_id)
        has_preference = any(each.priority > own_priority for each in settings.preferred) or not leadership.self_votes
        may_prefer = has_preference and context.core.is_ready and not context.machine.is_checkpointing
        if not is_to_go and not may_prefer:
            return None
        lacks = leadership.lacks_to_lead(context.log.last.position, context.now_ms())
        free = [peer for peer, lack in lacks.items() if lack is None and not self._is_left_alone(peer, now_s)]
        if not is_to_go:
            return leadership.preferred(free, settings)
        if is_full and not free:
            self._stay(lacks)
        return leadership.closest(free, settings)

    def _priorities(self) -> GroupSettings:
        """The operator's, or else those of an even spread."""
        settings = self._context.log.state.settings
        if settings.preferred or self._spread is None:
            return settings
        return self._spread.of(self._context.core.membership.voters)

    def _stay(self, lacks: Mapping[NodeId, Lack | None]) -> None:
        """With a full disk, and nobody to hand over to: said whenever the reason is another one."""
        needs = "; ".join(f"{peer}: {lack.need.value if lack else 'failed to take it'}" for peer, lack in lacks.items())
        if needs != self._why_not:
            self._why_not = needs
            told = "; ".join(f"{peer} {lack.why if lack else 'failed to take it'}" for peer, lack in lacks.items())
            logger.warning(
                "this leader's disk is full, and nobody else can take the leadership: appends are refused",
                extra={"group": self._context.group, "why": told or "there is no other voter"},
            )

    def _is_left_alone(self, peer: NodeId, now_s: float) -> bool:
        back_off = self._back_offs.get(peer)
        return back_off is not None and now_s < back_off.until_s

    def _begin(self, target: NodeId) -> None:
        self._target = None
        self._transfer = asyncio.get_running_loop().create_task(
            self._hand_over(target), name=f"preferred-{self._context.group}"
        )
        self._transfer.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._transfer = None
        self._context.watch_task(task)

    async def _hand_over(self, target: NodeId) -> None:
        fields = {"group": self._context.group, "target": target}
        logger.info("handing the leadership over", extra=fields | {"disk": self._context.core.disk.word})
        cannot_tell = self._cannot_tell
        try:
            new_leader = await self._handover.transfer(target)
        except DLedgerError as failure:
            if failure.code not in _NOT_THE_TARGETS_FAULT:
                wait_s = self._leave_alone(target)
                logger.warning(
                    "the leadership was not handed over",
                    extra=fields | {"why": failure, "again_in_s": wait_s},
                )
        else:
            if new_leader == target and not cannot_tell:
                self._back_offs.pop(target, None)
            else:
                self._leave_alone(target)

    def _leave_alone(self, target: NodeId) -> float:
        known = self._back_offs.get(target)
        wait_s = MIN_BACK_OFF_S if known is None else min(2 * known.wait_s, MAX_BACK_OFF_S)
        self._back_offs[target] = BackOff(wait_s, self._context.now_s() + wait_s)
        return wait_s

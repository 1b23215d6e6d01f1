"""Preferred leaders: the leadership goes to the highest priority that is healthy and close, when it is safe to give.

The leader looks every second. A target must have been eligible (raft/leadership.py says when) for a while without a
break, so that a node that has just come back, or comes and goes, is left alone. A handover that fails leaves the leader
leading, and its target alone for a time that doubles with every failure: appends pay at most one election timeout for
each attempt, and nobody is elected who lags.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from dledger.errors import Code, DLedgerError
from dledger.server.context import GroupContext
from dledger.server.handover import Handover
from dledger.types import NodeId, Role

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S = 1.0
HEALTHY_S = 3.0
"""How long a target must have been eligible."""
MIN_BACK_OFF_S = 5.0
MAX_BACK_OFF_S = 300.0

_NOT_THE_TARGETS_FAULT = (Code.LEADER_TRANSFERRING, Code.NOT_LEADER, Code.SHUTTING_DOWN)


@dataclass(slots=True)
class BackOff:
    """After a handover to one target failed."""

    wait_s: float
    until_s: float


class PreferredLeaders:
    """Knows what failed over all the terms that this node leads; forgets it when the target does lead."""

    def __init__(self, context: GroupContext, handover: Handover) -> None:
        self._context = context
        self._handover = handover
        self._next_look_s = 0.0
        self._target: NodeId | None = None
        self._eligible_since_s = 0.0
        self._back_offs: dict[NodeId, BackOff] = {}
        self._transfer: asyncio.Task[None] | None = None

    def check(self) -> None:
        """Called now and then."""
        now_s = self._context.now_s()
        if now_s < self._next_look_s or self._transfer is not None:
            return
        self._next_look_s = now_s + LOOK_INTERVAL_S
        target = self._find(now_s)
        if target != self._target:
            self._target, self._eligible_since_s = target, now_s
        elif target is not None and now_s >= self._eligible_since_s + HEALTHY_S:
            self._begin(target)

    def stop(self) -> None:
        if self._transfer is not None:
            self._transfer.cancel()

    def _find(self, now_s: float) -> NodeId | None:
        """Whom to hand over to, if only it stays so."""
        context, leadership = self._context, self._context.core.leadership
        settings = context.log.state.settings
        if context.role is not Role.LEADER or leadership is None or not context.core.is_ready:
            return None
        if not settings.preferred or leadership.transfer is not None:
            return None
        free = {
            peer for peer in leadership.followers if context.is_connected(peer) and not self._is_left_alone(peer, now_s)
        }
        return leadership.preferred_target(settings, free, context.log.last.position, context.config.limits)

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
        logger.info("handing the leadership to a preferred leader", extra=fields)
        try:
            new_leader = await self._handover.transfer(target)
        except DLedgerError as failure:
            if failure.code not in _NOT_THE_TARGETS_FAULT:
                wait_s = self._leave_alone(target)
                logger.warning(
                    "a preferred leader was not handed the leadership",
                    extra=fields | {"why": failure, "again_in_s": wait_s},
                )
        else:
            if new_leader == target:
                self._back_offs.pop(target, None)
            else:
                self._leave_alone(target)

    def _leave_alone(self, target: NodeId) -> float:
        known = self._back_offs.get(target)
        wait_s = MIN_BACK_OFF_S if known is None else min(2 * known.wait_s, MAX_BACK_OFF_S)
        self._back_offs[target] = BackOff(wait_s, self._context.now_s() + wait_s)
        return wait_s

"""LeadershipTransfer: gives the leadership to another node, on demand and when this one stops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from dledger.common.errors import Code, DLedgerError, error, quoted
from dledger.common.types import NodeId, Role
from dledger.group.context import GroupContext
from dledger.raft.fitness import Lack, Need
from dledger.raft.messages import NOBODY

logger = logging.getLogger(__name__)


_BEHIND = (Need.CONNECTION, Need.ANSWER, Need.CATCH_UP, Need.MACHINE)


def _code_of(lacks: Iterable[Lack | None], code: Code) -> Code:
    """LEADER_NOT_READY where a round trip mends it, else ``code``."""
    return Code.LEADER_NOT_READY if any(lack and lack.need is Need.COMPARED for lack in lacks) else code


class LeadershipTransfer:
    """At most one at a time. What it decides on is in raft/leadership.py."""

    def __init__(self, context: GroupContext, flush: Callable[[], None]) -> None:
        """``flush`` writes the appends that were taken and are not in the log yet."""
        self._context = context
        self._flush = flush
        self._core = context.core
        self._target = NOBODY
        self._is_leaving = False
        self._ended: asyncio.Future[NodeId] | None = None
        self._progress = asyncio.Event()
        """Set when a drain may go on: after a commit, when a peer is gone, or when the leadership is."""

    async def transfer(self, target: NodeId | None, *, dry_run: bool = False) -> NodeId:
        """Hands the leadership to ``target``; None: to the fit voter with the smallest lag. Returns the new leader, or
        with ``dry_run`` the node that would become it.

        Raises NOT_LEADER, LEADER_NOT_READY, LEADER_TRANSFERRING and UNKNOWN_MEMBER. Raises FALL_BEHIND_TOO_MUCH if the
        target lags or does not answer. Raises TAKE_LEADERSHIP_FAILED if it is unfit for another reason, or if no voter
        is fit. Raises it too if the target did not take over within an election timeout. After any of these this node
        leads on.
        """
        context = self._context
        chosen = self._choose(target)
        if dry_run:
            return chosen
        if chosen == self._core.node_id:
            await context.confirm_leadership()
            return chosen
        # Appends written after TAKE would put this log ahead of the target's, and nobody would vote for the target.
        self._flush()
        # The frames just written may have removed the target, and a failed write has ended the leadership.
        chosen = self._choose(target)
        self._ended, self._target = asyncio.get_running_loop().create_future(), chosen
        try:
            self._core.begin_transfer(chosen, context.log.durable_position, context.now_ms())
            context.run_effects()
            async with asyncio.timeout(3 * context.config.timings.election_timeout_max_ms / 1000):
                new_leader = await self._ended
        except TimeoutError:
            new_leader = NOBODY
        finally:
            self._ended, self._target = None, NOBODY
        if not new_leader:
            raise error(Code.TAKE_LEADERSHIP_FAILED, f"{chosen} did not take the leadership in time; see its log")
        return new_leader

    def _choose(self, target: NodeId | None) -> NodeId:
        """The node that is to lead, as things are now. Raises the errors that ``transfer`` raises before it begins."""
        context, leadership = self._context, self._core.leadership
        if context.role is not Role.LEADER or leadership is None:
            raise context.admission.not_leader()
        if self._ended is not None or leadership.transfer is not None:
            raise error(Code.LEADER_TRANSFERRING, "the leadership is being handed over already")
        last, now_ms = context.log.last.position, context.now_ms()
        lacks = leadership.lacks_to_lead(last, now_ms)
        if target == self._core.node_id:
            return target
        if target is None:
            chosen = leadership.closest(peer for peer, lack in lacks.items() if lack is None)
            if chosen is None and self._is_leaving:  # better one that cannot serve yet than an election
                lacks = leadership.lacks(last, now_ms)
                chosen = leadership.closest(peer for peer, lack in lacks.items() if lack is None)
            if chosen is None:
                told = "; ".join(f"{peer} {lack.why}" for peer, lack in lacks.items() if lack is not None)
                why = f"no other voter can take the leadership: {told or 'there is none'}"
                raise error(_code_of(lacks.values(), Code.TAKE_LEADERSHIP_FAILED), why)
            return chosen
        if target not in lacks:
            raise error(Code.UNKNOWN_MEMBER, f"{quoted(target)} is not a voter of group {context.group}")
        lack = lacks[target]
        if lack is not None:
            code = Code.FALL_BEHIND_TOO_MUCH if lack.need in _BEHIND else Code.TAKE_LEADERSHIP_FAILED
            raise error(_code_of([lack], code), f"{target} {lack.why}: mend that, or name another")
        return target

    async def leave(self) -> None:
        """Before a stop: what is pending is committed, then another leads. Gives up after ``stop_timeout_ms``."""
        timeout_s = self._context.config.timings.stop_timeout_ms / 1000
        self._is_leaving = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._drain()
                if self._context.role is Role.LEADER and self._core.membership.voters - {self._core.node_id}:
                    await self.transfer(None)
        except TimeoutError:
            self._warn(f"neither drained nor handed over within {timeout_s:g} s")
        except DLedgerError as failure:
            self._warn(str(failure))

    def _warn(self, why: str) -> None:
        logger.warning("stopping without a handover", extra={"group": self._context.group, "why": why})

    async def _drain(self) -> None:
        context, last = self._context, self._context.log.last.position
        while context.role is Role.LEADER and self._core.commit_position < last and self._may_commit():
            self._progress.clear()
            await self._progress.wait()

    def _may_commit(self) -> bool:
        leadership, context = self._core.leadership, self._context
        return leadership is not None and leadership.follows_quorum(context.log.last.position, context.now_ms())

    # What it is told -----------------------------------------------------------------------------------------------

    def on_progress(self) -> None:
        """Something was committed, or the leadership is lost."""
        self._progress.set()

    def on_disconnected(self, peer: NodeId) -> None:
        """A target that is gone takes nothing: appends go on at once."""
        self._progress.set()
        if peer == self._target:
            self._core.abort_transfer()

    def on_ended(self, new_leader: NodeId) -> None:
        """The core's word; empty: this node leads on."""
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(new_leader)

"""EntryHandler: the follower's side of COMPARE, TRUNCATE, RESET and APPEND.

Pushes may come in any order within the leader's window; they are written in the order of positions. Every frame proves
by its chain that it continues this log. What is acknowledged is durable **and** known to equal the leader's log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from itertools import takewhile

from dledger.common.errors import Code, DLedgerError, error
from dledger.common.limited_log import LimitedLog
from dledger.common.types import GENESIS, LogPoint, NodeId, Position, Term
from dledger.group.context import GroupContext
from dledger.log.frame.frame import Frame, following
from dledger.log.frame.log_snapshot import LogSnapshot
from dledger.log.log_api import Damaged
from dledger.raft import invariants
from dledger.raft.following import LedDown, compare_elsewhere, judge_compare, judge_reset, judge_truncate
from dledger.raft.messages import (
    NOBODY,
    Append,
    AppendResponse,
    Compare,
    PushResult,
    Reset,
    ResetResponse,
    Truncate,
    TruncateResponse,
)
from dledger.raft.state import VoteBlocker

logger = logging.getLogger(__name__)

Push = Compare | Truncate | Reset | Append

MAX_WAITING_PUSHES = 2_000
"""Pushes kept while a COMPARE, TRUNCATE or RESET reads or cuts the log; more are dropped, and the leader sends them
again."""


class EntryHandler:
    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._core = context.core
        self._log = context.log
        self._early: dict[int, Append] = {}
        """Pushes that came before the ones they follow, by first position."""
        self._early_bytes = 0
        self._limited_log = LimitedLog(logger)
        self._waiting: deque[tuple[NodeId, Push]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._acked = Position(0)
        self._term = Term(0)
        """The term that ``_early`` and ``_acked`` belong to."""
        self._led_down = LedDown()
        self._unanswered_id: int | None = None
        """Of the first COMPARE behind that."""
        self.led_down = LedDown()
        """The last COMPARE that was looked at."""

    @property
    def is_busy(self) -> bool:
        return self._task is not None

    def on_push(self, sender: NodeId, push: Push) -> None:
        """Takes a push of the leader, or keeps it until the COMPARE, TRUNCATE or RESET before it is done."""
        if self._task is not None:
            if len(self._waiting) < MAX_WAITING_PUSHES:
                self._waiting.append((sender, push))
        elif isinstance(push, Append):
            self._on_append(sender, push)
        else:
            self._start(sender, push)

    def _start(self, sender: NodeId, push: Compare | Truncate | Reset) -> None:
        name = f"entry-handler-{self._context.group}"
        self._task = asyncio.get_running_loop().create_task(self._work(sender, push), name=name)
        self._task.add_done_callback(self._done)

    async def _work(self, sender: NodeId, push: Compare | Truncate | Reset) -> None:
        """Does one COMPARE, TRUNCATE or RESET. If it needs damaged frames, it is not answered: the leader asks again
        later, when they may be repaired."""
        try:
            match push:
                case Compare():
                    await self._on_compare(sender, push)
                case Truncate():
                    await self._on_truncate(sender, push)
                case Reset():
                    await self._on_reset(sender, push)
        except Damaged as why:
            group, now_s = self._context.group, self._context.now_s()
            self._limited_log.say(logging.WARNING, "damaged", now_s, "a push has to wait", group=group, why=str(why))
            self._context.on_blocked(why)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self._context.watch_task(task)
        while self._waiting and self._task is None:
            self._context.on_message(*self._waiting.popleft())

    def stop(self) -> None:
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    # COMPARE -----------------------------------------------------------------------------------------------------

    async def _on_compare(self, sender: NodeId, ask: Compare) -> None:
        if not self._obey(sender, ask):
            self._answer_compare(sender, ask, PushResult.EXPIRED_TERM, GENESIS)
            return
        if self._is_led_down(ask):
            return
        if (ask.term, ask.request_id) > self.led_down:
            self.led_down = LedDown(ask.term, ask.request_id)
        point = ask.point
        try:
            mine = await self._point_at(point.position)
        except Damaged:
            if point.position <= self._log.state.start.position:
                return  # trimmed meanwhile: asked again, it is answered so
            mine = LogPoint(point.position, self._log.term_at(point.position), 0)
            if mine.term == point.term:
                raise  # it should be equal, and nothing here shows that it is
        if ask.term != self._core.term:
            return
        if mine is None:
            # Looked at again: the log may have been trimmed meanwhile.
            elsewhere = compare_elsewhere(point.position, self._log.state.start, self._log.last)
            self._answer_compare(sender, ask, PushResult.INCONSISTENT_STATE, elsewhere or self._log.state.start)
            return
        result = judge_compare(point, mine, self._core.commit_position, self._core.committed_before_term)
        if result is PushResult.SUCCESS:
            self._core.on_matched(point.position)
            self._answer_compare(sender, ask, result, self._log.last)
            self._acked = Position(0)
            self.acknowledge()
        elif result is PushResult.DIVERGED:
            self._answer_compare(sender, ask, result, point)
            self._fail_diverged(sender, point.position)
        else:
            self._answer_compare(sender, ask, result, self._highest_in_terms(point))

    def was_led_down(self, led_down: LedDown) -> None:
        """By another, that answered its COMPAREs before this one."""
        self._led_down = led_down

    def _is_led_down(self, ask: Compare) -> bool:
        """Whether ``ask`` is left unanswered, as an earlier replica's answer led the leader there (``LedDown``).

        The leader may ask below frames that were damaged then, and are repaired and equal now. If it found the logs
        equal down there, it would have everything behind cut, or call committed frames lost. So the first question
        after the one that was answered is left open, however often and late it comes. The leader then begins again at
        the end of its log.
        """
        if ask.term != self._led_down.term:
            return False
        if self._unanswered_id is None and ask.request_id > self._led_down.request_id:
            self._unanswered_id = ask.request_id
        return self._unanswered_id is None or ask.request_id <= self._unanswered_id

    async def _point_at(self, position: Position) -> LogPoint | None:
        """None outside of the log, also if it was trimmed a moment ago."""
        if position > self._log.last.position:
            return None
        try:
            return await self._log.point_at(position)
        except DLedgerError as failure:
            if failure.code is not Code.INDEX_LESS_THAN_LOCAL_BEGIN:
                raise
            return None

    def _highest_in_terms(self, point: LogPoint) -> LogPoint:
        """The next point to compare: the highest position up to ``point`` with a term that is not above the point's."""
        start = self._log.state.start
        position = self._context.log.state.last_position_in_terms(point.position, point.term)
        return start if position <= start.position else LogPoint(position, self._log.term_at(position), 0)

    def _fail_diverged(self, sender: NodeId, position: Position) -> None:
        """Two logs with other bytes under one (position, term), or below the commit: never truncated, never hidden."""
        self._context.fail(
            Code.DIVERGED,
            f"the log of {sender} differs from this one at or behind position {position}, where this one is committed "
            "or equally numbered; compare both with 'dledger log verify' before either is trusted",
        )

    def _answer_compare(self, sender: NodeId, ask: Compare, result: PushResult, there: LogPoint) -> None:
        admits_loss = VoteBlocker.OWES_CATCH_UP in self._core.vote_blockers
        self._context.send(sender, ask.answered(self._core.term, result, there, admits_loss=admits_loss))

    # TRUNCATE and RESET ------------------------------------------------------------------------------------------

    async def _on_truncate(self, sender: NodeId, ask: Truncate) -> None:
        if not self._obey(sender, ask):
            self._answer_truncate(sender, ask, PushResult.EXPIRED_TERM)
            return
        point = ask.point
        if await self._point_at(point.position) != point:
            self._answer_truncate(sender, ask, PushResult.INCONSISTENT_STATE)
            return
        async with self._context.exclusive():
            if ask.term != self._core.term or sender != self._core.leader_id:
                return  # while we waited another leader came: its own COMPARE decides
            result = judge_truncate(point.position, self._core.matched_position, self._core.committed_before_term)
            if result is PushResult.SUCCESS and point.position < self._log.last.position:
                await self._cut(point.position)
        self._answer_truncate(sender, ask, result)
        if result is PushResult.DIVERGED:
            self._fail_diverged(sender, point.position)

    async def _cut(self, after: Position) -> None:
        invariants.check_truncate(self._core.role, after, self._core.commit_position)
        logger.info(
            "cutting a tail that the leader does not have",
            extra={"group": self._context.group, "after": after, "last": self._log.last.position},
        )
        await self._log.truncate(after)
        self._context.on_truncated(after)

    def _answer_truncate(self, sender: NodeId, ask: Truncate, result: PushResult) -> None:
        self._context.send(sender, TruncateResponse(ask.group, self._core.term, result, ask.request_id))

    async def _on_reset(self, sender: NodeId, ask: Reset) -> None:
        if not self._obey(sender, ask):
            self._answer_reset(sender, ask, PushResult.EXPIRED_TERM)
            return
        async with self._context.exclusive():
            if ask.term != self._core.term or sender != self._core.leader_id:
                return  # while we waited another leader came: its own COMPARE decides
            try:
                result = await self._begin_anew(sender, ask)
            except Damaged:
                raise
            except DLedgerError as refusal:
                if refusal.code not in (Code.CORRUPT_LOG, Code.DISK_FULL):
                    raise
                logger.warning("the log cannot begin anew", extra={"group": ask.group, "peer": sender, "why": refusal})
                is_full = refusal.code is Code.DISK_FULL
                if is_full:
                    self._context.on_disk_full()
                result = PushResult.DISK_FULL if is_full else PushResult.INCONSISTENT_STATE
        self._answer_reset(sender, ask, result)
        if result is PushResult.DIVERGED:
            self._fail_diverged(sender, self._log.last.position)

    async def _begin_anew(self, sender: NodeId, ask: Reset) -> PushResult:
        begin = LogSnapshot.decode(ask.log_state)
        point = begin.last
        mine = await self._point_at(point.position)
        result = judge_reset(point, mine, self._log.state.start, self._core.commit_position)
        if result is not PushResult.SUCCESS:
            return result
        if begin.first_index <= self._context.commit_index:
            return PushResult.DIVERGED  # fewer records before a later position than are committed here
        logger.warning(
            "this log ends before the leader's begins; it begins anew there",
            extra={"group": ask.group, "peer": sender, "last": self._log.last.position, "begin": point.position},
        )
        if self._log.last.position >= point.position:
            after = self._end_below(point)
            if after < point.position - 1:
                await self._context.owe_catch_up()
            await self._cut(after)
        await self._log.reset(ask.log_state)
        self._early.clear()
        self._early_bytes = 0
        self._context.on_reset()
        return result

    def _end_below(self, point: LogPoint) -> Position:
        """Where to cut a log that has another frame than ``point`` at its position.

        Frames below ``point`` may be committed and acknowledged by this node, even if this node does not know it. So
        they stay, unless they are damaged or follow damaged ones.
        """
        commit, after = self._core.commit_position, Position(point.position - 1)
        damaged = (each.previous.position for each in self._log.damaged())
        return min((each for each in damaged if commit <= each < after), default=after)

    def _answer_reset(self, sender: NodeId, ask: Reset, result: PushResult) -> None:
        self._context.send(sender, ResetResponse(ask.group, self._core.term, result, ask.request_id))

    # APPEND ------------------------------------------------------------------------------------------------------

    def _on_append(self, sender: NodeId, push: Append) -> None:
        if not self._obey(sender, push):
            self._answer_append(sender, PushResult.EXPIRED_TERM, Position(0))
            return
        taken: Append | None = push
        while taken is not None and self._take(sender, taken):
            taken = self._next_early()
        self._core.follow_commit(push.commit_position)
        self._context.on_leader_commit(push.commit_position)

    def _take(self, sender: NodeId, push: Append) -> bool:
        """True when the log grew, so frames that came early may follow."""
        frames, last = push.frames, self._log.last.position
        if not frames:
            return False
        first = frames[0].header.position
        if first > last + 1:
            self._keep_early(sender, push)
            return False
        return self._take_overlapping(sender, push) if first <= last else self._write(sender, frames)

    def _take_overlapping(self, sender: NodeId, push: Append) -> bool:
        """Frames we have already: passed over as far as they are known to be the leader's."""
        known = self._core.matched_position
        rest = tuple(frame for frame in push.frames if frame.header.position > known)
        if not rest:
            self._acked = Position(0)
            self.acknowledge()
            return False
        if rest[0].header.position == self._log.last.position + 1:
            return self._write(sender, rest)
        self._answer_append(sender, PushResult.INCONSISTENT_STATE, Position(0))
        return False

    def _keep_early(self, sender: NodeId, push: Append) -> None:
        size_bytes = sum(frame.header.stored_bytes for frame in push.frames)
        limits = self._context.config.limits
        if self._early_bytes + size_bytes > limits.push_window_bytes + limits.push_message_bytes:
            self._early.clear()
            self._early_bytes = 0
            self._answer_append(sender, PushResult.INCONSISTENT_STATE, Position(0))
            return
        if self._early.setdefault(push.frames[0].header.position, push) is push:
            self._early_bytes += size_bytes

    def _next_early(self) -> Append | None:
        push = self._early.pop(self._log.last.position + 1, None)
        if push is not None:
            self._early_bytes -= sum(frame.header.stored_bytes for frame in push.frames)
        return push

    def _write(self, sender: NodeId, frames: Sequence[Frame]) -> bool:
        if not self._check(sender, frames):
            return False
        try:
            self._log.append(frames)
        except DLedgerError as refusal:
            if refusal.code is not Code.DISK_FULL:
                self._context.on_write_failed(refusal)
                return False
            self._context.on_disk_full()
            group, now_s = self._context.group, self._context.now_s()
            self._limited_log.say(logging.ERROR, "full", now_s, "this follower falls behind", group=group, why=refusal)
            self._answer_append(sender, PushResult.DISK_FULL, Position(0))
            return False
        self._core.on_matched(self._log.last.position)
        self._context.on_appended(frames)
        return True

    def _check(self, sender: NodeId, frames: Sequence[Frame]) -> bool:
        try:
            self._check_fit(frames)
        except DLedgerError as refusal:
            logger.warning(
                "refused a push that does not fit", extra={"group": self._context.group, "peer": sender, "why": refusal}
            )
            self._answer_append(sender, PushResult.INCONSISTENT_STATE, Position(0))
            return False
        return True

    def _check_fit(self, frames: Sequence[Frame]) -> None:
        """The chain, the offsets and the terms. Raises CORRUPT_LOG and CORRUPT_BATCH."""
        log, term = self._log, self._core.term
        max_record_bytes = self._context.machine.max_record_bytes(frames)
        for frame in following(frames, log.last, log.state.next_index, max_record_bytes):
            if frame.header.term > term:
                position, later = frame.header.position, frame.header.term
                raise error(Code.CORRUPT_LOG, f"frame {position} is of term {later}, which is yet to come")

    def take_tail(self, frames: Sequence[Frame]) -> None:
        """Takes frames that come from no leader, for a candidate that lacks them (``RaftNode.takes_tail``). They are in
        the log from now on, and nothing more: not known to be a leader's, not acknowledged."""
        heard_of = list(takewhile(lambda frame: frame.header.term <= self._core.term, frames))
        if self._task is not None or not heard_of or not self._core.takes_tail:
            return
        try:
            self._check_fit(heard_of)
            self._log.append(heard_of)
        except DLedgerError as refusal:
            if refusal.code is Code.DISK_ERROR:
                self._context.fail(refusal.code, str(refusal))
            logger.warning(
                "the frames that this log lacks do not fit", extra={"group": self._context.group, "why": refusal}
            )
            return
        self._context.on_appended(heard_of)

    # Answers -----------------------------------------------------------------------------------------------------

    def acknowledge(self) -> None:
        """Tells the leader how far this log is durable and known to equal its own."""
        leader = self._core.leader_id
        position = min(self._log.durable_position, self._core.matched_position)
        if leader in (NOBODY, self._core.node_id) or position <= self._acked:
            return
        self._acked = position
        self._answer_append(leader, PushResult.SUCCESS, position)

    def _answer_append(self, to: NodeId, result: PushResult, position: Position) -> None:
        self._context.send(to, AppendResponse(self._context.group, self._core.term, result, position))

    def _obey(self, sender: NodeId, push: Push) -> bool:
        obeyed = self._core.hear_leader(sender, push.term, self._context.now_ms())
        if obeyed and push.term != self._term:
            # Nothing of an old leader's pushes is kept.
            self._term = push.term
            self._early.clear()
            self._early_bytes = 0
            self._acked = Position(0)
        self._context.run_effects()
        return obeyed

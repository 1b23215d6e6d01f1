"""EntryDispatcher: the leader's task for one follower. What to send is decided in raft/replication.py; it sends."""

from __future__ import annotations

import asyncio
import logging

from dledger.common.config import Limits
from dledger.common.errors import Code, DLedgerError
from dledger.common.limited_log import LimitedLog
from dledger.common.pace import Pace
from dledger.common.types import NodeId, Position, Term
from dledger.group.context import GroupContext
from dledger.log.frame.frame import Frame
from dledger.log.log_api import Damaged, Log
from dledger.raft.messages import Append, Compare, CompareResponse, PushResult, Reset, ResetResponse, Truncate
from dledger.raft.patience import Patience
from dledger.raft.replication import Progress, PushState

logger = logging.getLogger(__name__)

ALONE_S = 1.0
"""After so long without an append a follower that catches up has the disk, and the processors, to itself."""
RESET_PAUSE_MS = 500
"""After a follower could not begin anew, it is not told again for so long, nor is the state for it looked up."""


class EntryDispatcher:
    """Lives as long as one leader's term. ``push`` when there is something new, ``wake`` when anything else changed."""

    def __init__(self, context: GroupContext, peer: NodeId, term: Term, progress: Progress) -> None:
        self._context = context
        self._log: Log = context.log
        self._limits: Limits = context.config.limits
        self._peer = peer
        self._term = term
        self.progress = progress
        self._patience = Patience(context.config.timings.push_resend_ms)
        self._pace = Pace(self._limits.catch_up_bytes_per_s)
        self._appended_bytes = context.metrics.bytes_appended
        """When it read frames for the follower last."""
        self._appended_s = 0.0
        """When it saw more of them last."""
        self._limited_log = LimitedLog(logger)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._wake.set()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"entry-dispatcher-{self._peer}")
        self._task.add_done_callback(self._context.watch_task)

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    @property
    def is_level(self) -> bool:
        """Whether the follower has acknowledged all of the leader's log: there is nothing to send, or to wait for."""
        return self.progress.is_level(self._log.last.position)

    def wake(self) -> None:
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if not self._context.is_connected(self._peer):
                continue
            self._give_up_overdue()
            try:
                await self._step()
            except Damaged:
                continue  # this node is giving up its leadership; if it keeps it, it is woken before long
            except DLedgerError as failure:
                if failure.code is not Code.INDEX_LESS_THAN_LOCAL_BEGIN:
                    raise
                # The log was trimmed meanwhile, past what was to be sent: compare from its end again.
                self.progress.restart(self._log.last.position)
                self._wake.set()

    async def _step(self) -> None:
        match self.progress.state:
            case PushState.COMPARE:
                await self._compare()
            case PushState.TRUNCATE:
                await self._truncate()
            case PushState.RESET:
                await self._reset()
            case PushState.APPEND:
                await self._append()

    def _give_up_overdue(self) -> None:
        """An answer that is overdue was lost, or its question was: compare again rather than guess."""
        if self.progress.acknowledged_after_ms is not None:
            self._patience.acknowledged(self.progress.acknowledged_after_ms)
            self.progress.acknowledged_after_ms = None
        asked_ms = self.progress.overdue_ms()
        if asked_ms is not None and self._context.now_ms() - asked_ms > self._patience.wait_ms:
            self._patience.give_up()
            self._context.metrics.pushes_resent += len(self.progress.in_flight)
            self.progress.restart(self._log.last.position)

    async def _compare(self) -> None:
        progress = self.progress
        if progress.waiting_since_ms is not None or self._context.now_ms() < progress.paused_until_ms:
            return
        position = progress.compare_at
        if position < self._log.state.start.position:
            progress.state = PushState.RESET  # trimmed since it was answered: what both logs share is gone here
            self._wake.set()
            return
        point = await self._log.point_at(position)
        if progress.state is not PushState.COMPARE or progress.compare_at != position:
            self._wake.set()
            return
        request_id = progress.asked(self._context.now_ms())
        self._send(Compare(self._context.group, self._term, point, request_id))

    async def _truncate(self) -> None:
        progress = self.progress
        if progress.waiting_since_ms is not None:
            return
        point = await self._log.point_at(Position(progress.next - 1))
        if progress.state is not PushState.TRUNCATE or point.position != progress.next - 1:
            self._wake.set()
            return
        request_id = progress.asked(self._context.now_ms())
        logger.info(
            "truncating a follower's divergent tail",
            extra={"group": self._context.group, "peer": self._peer, "after": point.position},
        )
        self._send(Truncate(self._context.group, self._term, point, request_id))

    async def _reset(self) -> None:
        progress = self.progress
        if progress.waiting_since_ms is not None or self._context.now_ms() < progress.paused_until_ms:
            return
        try:
            log_state = await self._log.state_at_start()
        except Damaged as why:
            self._limited_log.say(
                logging.WARNING,
                "untold",
                self._context.now_s(),
                "this leader cannot tell a follower what the log begins with",
                group=self._context.group,
                peer=self._peer,
                why=str(why),
            )
            self._context.on_beginning_untold()
            progress.paused_until_ms = self._context.now_ms() + RESET_PAUSE_MS
            raise
        if progress.state is not PushState.RESET:
            self._wake.set()
            return
        request_id = progress.asked(self._context.now_ms())
        logger.warning(
            "a follower's log ends before this one begins; it is to begin anew here",
            extra={"group": self._context.group, "peer": self._peer, "begin": self._log.state.start.position},
        )
        self._send(Reset(self._context.group, self._term, log_state, request_id))

    def push(self) -> None:
        """Sends one message that the window admits, at once when the tail cache has it; the task does everything
        else."""
        if self.progress.state is not PushState.APPEND:
            self._wake.set()
        elif self._may_push:
            frames = self._log.cached(self.progress.next, self._limits.push_message_bytes)
            if frames is None or (self._send_frames(frames) and self._may_push):
                self._wake.set()

    @property
    def _may_push(self) -> bool:
        """Whether there are frames to send, and the window admits them."""
        return self.progress.next <= self._log.last.position and self.progress.window_open

    async def _append(self) -> None:
        """Catches a follower up. Between two messages the loop has a turn: they are many, and heartbeats must go on."""
        progress, max_bytes = self.progress, self._limits.push_message_bytes
        while progress.state is PushState.APPEND and self._may_push:
            first, pause_s = progress.next, 0.0
            frames = self._log.cached(first, max_bytes)
            if frames is None:
                frames = await self._log.read(first, max_bytes)
                pause_s = self._pause_s(frames)
            if progress.state is PushState.APPEND and progress.next == first and not self._send_frames(frames):
                return
            await asyncio.sleep(pause_s)

    def _pause_s(self, read: list[Frame]) -> float:
        """Frames read again for a follower leave room for appends, if there are any. The follower gains on the appends
        by so much a second, however fast they are."""
        now_s, appended_bytes = self._context.now_s(), self._context.metrics.bytes_appended
        meanwhile, self._appended_bytes = appended_bytes - self._appended_bytes, appended_bytes
        if meanwhile:
            self._appended_s = now_s
        is_alone = now_s - self._appended_s > ALONE_S
        return self._pace.pause_s(0 if is_alone else max(0, stored_bytes(read) - meanwhile), now_s)

    def _send_frames(self, frames: list[Frame]) -> bool:
        self.progress.sent(Position(frames[-1].header.position), stored_bytes(frames), self._context.now_ms())
        self._context.metrics.pushes_sent += 1
        return self._send(self._context.append_message(self._term, frames))

    def _send(self, message: Append | Compare | Truncate | Reset) -> bool:
        if self._context.send(self._peer, message):
            return True
        self.progress.restart(self._log.last.position)
        return False

    def on_connected(self) -> None:
        """What was in flight on the old connection may be lost: compare again."""
        self._patience.forget()
        self.progress.restart(self._log.last.position)
        self.wake()

    def on_compare_response(self, answer: CompareResponse) -> None:
        if answer.result is PushResult.DIVERGED:
            logger.critical(
                "a follower holds other bytes at the same position and term; it is left alone",
                extra={"group": self._context.group, "peer": self._peer, "position": answer.position},
            )
            self.progress.paused_until_ms = float("inf")
            return
        start = self._log.state.start.position
        lost_from = self.progress.on_compare(answer, self._match_in_terms(answer), start)
        if lost_from is not None and answer.position < min(lost_from, self._context.core.commit_position):
            logger.log(
                logging.WARNING if answer.admits_loss else logging.CRITICAL,
                "a follower lost frames that it had acknowledged and that are committed",
                extra={"group": self._context.group, "peer": self._peer, "acknowledged": lost_from},
            )
            if not answer.admits_loss:
                self._context.on_lost_frames(self._peer)
        self.wake()

    def on_reset_response(self, answer: ResetResponse) -> None:
        if answer.result is not PushResult.SUCCESS:
            self.progress.paused_until_ms = self._context.now_ms() + RESET_PAUSE_MS
        self.progress.on_reset(answer, self._log.last.position)
        self.wake()

    def _match_in_terms(self, answer: CompareResponse) -> Position:
        return self._context.log.state.last_position_in_terms(answer.position, answer.position_term)


def stored_bytes(frames: list[Frame]) -> int:
    return sum(frame.header.stored_bytes for frame in frames)

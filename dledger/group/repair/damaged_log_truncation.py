"""DamagedLogTruncation: how far a leader may cut a log that is too damaged to be opened.

Damaged frames may exist nowhere else, for example frames that this node wrote as a leader and no other node got. Then
no copy ever comes, and only a leader can end the wait.

The answers to the leader's COMPAREs lead it down from the log's end, past the damage, to a point that both logs have.
If the leader has shown on the way that its log differs further up, all frames behind that point are cut. The log is
also cut before a damaged range that the leader's log has trimmed.

Some of the cut frames may have been acknowledged and committed. Such are damaged frames below the place from which the
logs are known to differ. Such is also a damaged end, known by a mark alone. In these cases a debt is made durable
before the cut. The node then does not vote until a leader has caught it up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from dledger.common.errors import CorruptLog
from dledger.common.types import LogPoint, NodeId, Position, Term
from dledger.log.damage.damaged_log import DamagedLog
from dledger.log.log_api import DamagedRange
from dledger.raft.following import LedDown
from dledger.raft.messages import Compare, CompareResponse, Message, PushResult
from dledger.raft.raft_node import RaftNode

logger = logging.getLogger(__name__)


class DamagedLogTruncation:
    """``owe_catch_up`` makes the debt durable; ``on_cut`` is told when the log ends elsewhere, and may be opened."""

    def __init__(
        self,
        log: DamagedLog,
        core: RaftNode,
        *,
        send: Callable[[NodeId, Message], bool],
        owe_catch_up: Callable[[], Awaitable[None]],
        on_cut: Callable[[], None],
        watch_task: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._log = log
        self._core = core
        self._send = send
        self._owe_catch_up = owe_catch_up
        self._on_cut = on_cut
        self._watch_task = watch_task
        self._task: asyncio.Task[None] | None = None
        self._term = Term(0)
        self._asked_id = 0
        """The id of the leader's last COMPARE: a repeated or late one does not tell how far its leader is now."""
        self._answered: CompareResponse | None = None
        """The answer to the last COMPARE that got one, with a point that is surely this log's."""
        self.led_down = LedDown()
        self._parts_at: Position | None = None
        """Lowest position at which this term's leader is known to have another frame."""

    def was_led_down(self, led_down: LedDown) -> None:
        """By another, that answered its COMPAREs before this one."""
        self.led_down = led_down
        self._term, self._asked_id = led_down

    def on_compare(self, leader: NodeId, ask: Compare) -> None:
        """Of the leader that the core obeys."""
        self._begin(self._on_compare(leader, ask))

    def on_trimmed(self, peer: NodeId, damaged: DamagedRange) -> None:
        """The log of ``peer`` begins behind the first of ``damaged``."""
        if peer == self._core.leader_id and self._log.damaged()[:1] == [damaged]:
            self._begin(self._cut(damaged.previous.position, owes=True))

    async def stop(self) -> None:
        """Returns when nothing is being cut."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def _begin(self, work: Awaitable[None]) -> None:
        if self._task is not None:
            if asyncio.iscoroutine(work):
                work.close()
            return  # the leader asks again

        async def done() -> None:
            await work

        self._task = asyncio.get_running_loop().create_task(done(), name=f"overruling-{self._log.group}")
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._task = None
        self._watch_task(task)

    async def _on_compare(self, leader: NodeId, ask: Compare) -> None:
        if ask.term != self._term:
            self._term, self._asked_id, self._parts_at, self._answered = ask.term, 0, None, None
        if ask.request_id <= self._asked_id:
            return
        self._asked_id = ask.request_id
        log, point = self._log, ask.point
        if log.last.term >= ask.term:
            return  # the end of this log is the leader's own: it is equal, and is repaired
        self._conclude(ask)
        if point.position > log.last.position:
            self._answer(leader, ask, log.last)
            return
        if point.position < self._floor:
            return  # what is committed is equal, and is repaired
        mine = await self._good(point.position)
        if mine == point:
            await self._found_equal(point.position)
            return
        if mine is not None and mine.term == point.term:
            logger.critical("the leader has another frame of the same term", extra={"position": point.position})
            return
        if mine is not None or log.last.term < point.term or self._ends_otherwise(point):
            # Terms never fall along a log: if its last term is lower, no term of it is so high.
            self._part(point.position)
        if self._parts_at is not None:
            await self._lead_down(leader, ask)

    def _ends_otherwise(self, point: LogPoint) -> bool:
        """The term of this log's last frame is known by the mark, though the frame be damaged."""
        return point.position == self._log.last.position and point.term != self._log.last.term

    async def _lead_down(self, leader: NodeId, ask: Compare) -> None:
        """Answers with the next point to ask about: the highest good frame before the point asked, with a term not
        above that point's. Does not answer if there is none at or above ``_floor``."""
        point = ask.point
        for position in range(point.position - 1, self._floor - 1, -1):
            found = await self._good(Position(position))
            if found is not None and found.term <= point.term:
                self._answer(leader, ask, found)
                return

    @property
    def _floor(self) -> int:
        """The lowest position that a leader is asked about: everything before it is committed, and is repaired. It is
        lower than the commit hint if a damaged range reaches over the hint: such a range can only be cut as a whole."""
        log = self._log
        damaged = next((each for each in log.damaged() if each.first <= log.commit_hint < each.last), None)
        lowest = log.commit_hint if damaged is None else damaged.previous.position
        return max(log.state.start.position, lowest)

    def _conclude(self, ask: Compare) -> None:
        """Learns from the next question where the logs differ.

        After an answer with (position, term), the leader asks at its highest position up to there with a term not above
        the answer's. If it asks lower, its frames in between have higher terms than any frame up to there in this log.
        So the logs differ right above the point asked.
        """
        answered, asked = self._answered, ask.point.position
        if answered is not None and asked < answered.position:
            self._part(Position(asked + 1))

    def _part(self, position: Position) -> None:
        self._parts_at = min(position, self._parts_at or position)

    async def _found_equal(self, position: Position) -> None:
        """The logs are equal at ``position``. If they are known to differ above it, and damage lies above it, the log
        is cut behind it.

        Everything up to ``position`` can be repaired, if need be from this leader. No committed frame goes that is not
        damaged. A damaged end is known by a sync mark alone. If the newest mark rotted, an older mark may be left. It
        may name frames that a TRUNCATE has removed since. By such a mark equal logs may seem to differ, so a damaged
        end is always owed.
        """
        parts_at, damaged = self._parts_at, self._log.damaged()
        if parts_at is None or not damaged or damaged[0].first <= position:
            return
        if position >= self._log.commit_hint or damaged[0].previous.position == position:
            is_end_damaged = damaged[-1].last >= self._log.last.position
            await self._cut(position, owes=is_end_damaged or damaged[0].first < parts_at)

    async def _cut(self, after: Position, *, owes: bool) -> None:
        logger.error(
            "the leader's log is another one where this one is damaged; it is cut",
            extra={"group": self._log.group, "after": after, "last": self._log.last.position, "owes_catch_up": owes},
        )
        if owes:
            await self._owe_catch_up()
        await self._log.cut(after)
        self._on_cut()

    async def _good(self, position: Position) -> LogPoint | None:
        """None if it is damaged."""
        if position == self._log.state.start.position:
            return self._log.state.start
        try:
            return (await self._log.read(position, 1))[0].header.point
        except CorruptLog:
            return None

    def _answer(self, leader: NodeId, ask: Compare, there: LogPoint) -> None:
        answer = ask.answered(self._core.term, PushResult.INCONSISTENT_STATE, there, admits_loss=True)
        self._answered, self.led_down = answer, LedDown(ask.term, ask.request_id)
        self._send(leader, answer)

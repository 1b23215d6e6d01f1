"""TailQuery: after an unclean stop, a node that cut its log's end asks the others for the frames behind the cut.

The cut bytes were most likely a torn write, which the node never acknowledged. But they may have been frames of its
last group that rotted: acknowledged a moment before the power went, and not marked yet. Then a candidate without these
frames must not get its vote. Until the node knows, it votes only for a log that ends in a later term: such a log cannot
lack them (``NodeState.lose_tail``).

**The leader's answer is final.** If the leader of this node's last term answers, its answer counts alone (``_leader``).
Raft guarantees that its log holds every entry that is, or can still become, committed. A candidate need not have
anything that is missing in that log by then.

**Without such a leader** the node needs the answers of a majority of the voters, itself included. The voters are named
by its own log, or by a log that goes further. An election needs as many nodes alive. A node that asks also answers
others, so no node waits for ever, not even after a power cut of all. The exception is a node with links to one other
node only (docs/gaps.md).

An acknowledged frame lies on a majority too. But that majority and the majority that answered may share only this node.
So for ``election_timeout_max_ms`` the node waits for every node that it knows, and is certain if all of them answer.
That includes learners, as the cut frames may have promoted one. After that time it asks all of them once more, and goes
by the answers. So a slow node does not hide the answers of nodes that became reachable meanwhile.

**The end that a candidate must have.** The voters' logs may differ behind the cut. A former leader may have written
frames there for one node alone. Each log is followed to its end, as far as this node may have acknowledged its frames.
A log that begins behind the cut is followed from its beginning. Of all these ends, a candidate must have the one that
Raft's comparison of logs prefers (``NodeState.min_candidate_end``).

Frames of that log are appended once everybody had time to answer, and only while nobody leads. The chain alone proves
them. A leader would bring this log up to its own. Frames that a leader did not bring are taken when it is gone.

**Over restarts.** Two facts are durable (group/group_record.py): the point of the cut, and that nobody was asked yet.
They stay until a leader has brought this log up to its own (``Replica.on_leader_commit``). Frames taken before that may
be an unacknowledged branch. So a later start asks again for the frames behind the cut.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from itertools import compress
from typing import Protocol

from dledger.common.errors import Code, DLedgerError
from dledger.common.types import GENESIS, LogPoint, NodeId, Position, Term
from dledger.group.context import GroupContext
from dledger.group.repair.frame_client import FrameClient
from dledger.log.frame.frame import Frame, following
from dledger.raft.messages import NOBODY, FetchResponse, FetchResult
from dledger.raft.quorum import majority
from dledger.raft.state import further

logger = logging.getLogger(__name__)

RETRY_S = 0.2
_AS_FAR_AS_IT_GOES = Position((1 << 63) - 1)
_TELLS = frozenset({FetchResult.SUCCESS, FetchResult.BEHIND_END, FetchResult.TRIMMED, FetchResult.OTHER_LOG})
"""Answers that tell the other node's frames. A node that is damaged there, or lost its own end, says nothing yet. A
peer in doubt that has nothing says nothing either: another disk may have acknowledged frames under its id. Frames that
it does have were written by some leader, and count."""


class Follower(Protocol):
    """The EntryHandler, as far as others than a leader may write."""

    @property
    def is_busy(self) -> bool: ...


class TailQuery:
    def __init__(
        self,
        context: GroupContext,
        client: FrameClient,
        follower: Follower,
        *,
        cut_behind: LogPoint,
        others: Callable[[], Collection[NodeId]],
        on_answered: Callable[[LogPoint], None],
    ) -> None:
        """``cut_behind``: up to this point this node surely has everything that it acknowledged. ``others``: the nodes
        that it knows by now. ``on_answered`` is told the least end of a log that this node votes for from now on."""
        self._context = context
        self._client = client
        self._follower = follower
        self._others = others
        self._on_answered = on_answered
        self._answered: set[NodeId] = set()
        self._term = context.core.term
        """It can have acknowledged nothing of a later one."""
        self._cut_behind = cut_behind
        self._end = context.log.last
        self._ends: dict[NodeId, LogPoint] = {}
        """By peer: its last point behind the cut that this node may have acknowledged."""
        self._least_end = GENESIS
        """The furthest end heard of; the leader's, once it has answered."""
        self._leader: NodeId | None = None
        """The leader of this node's term, once it has answered. Its log holds every frame acknowledged by this node
        that is, or can still become, committed. This node got the frames of its own term from this leader. Of earlier
        terms the leader has every frame that can be committed (Raft §5.4.3)."""
        self._electorates: set[frozenset[NodeId]] = set()
        """The voters by logs that go as far as this one did, or further."""
        self._connected = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.frames_taken = 0

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"tail-{self._context.group}")
        self._task.add_done_callback(self._context.watch_task)

    def on_connected(self) -> None:
        """Another can be asked: the sooner, the less it has got that this node cannot have acknowledged."""
        self._connected.set()

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        await self._hear()
        logger.info(
            "the others were asked for what followed the end of this log; voting again",
            extra={"group": self._context.group, "answers": len(self._answered), "frames": self.frames_taken},
        )
        self._on_answered(self._least_end)
        while self._lacks_end:
            await asyncio.sleep(RETRY_S)
            await self._take()

    async def _hear(self) -> None:
        """Until everybody, or enough of them, has answered, and what can be taken is here."""
        context = self._context
        patient_until_s = context.now_s() + context.config.timings.election_timeout_max_ms / 1000
        while missing := self._missing():
            was_patient = context.now_s() >= patient_until_s
            await asyncio.gather(*map(self._ask, missing))
            if self._leader is not None:
                await self._take_from(self._leader)
                return
            if self._missing() and not was_patient:
                await self._pause()
                continue
            await self._take()
            if self._has_heard_enough():
                return
            await self._pause()

    async def _pause(self) -> None:
        """Until another can be asked, or all are asked again."""
        try:
            async with asyncio.timeout(RETRY_S):
                await self._connected.wait()
        except TimeoutError:
            return
        finally:
            self._connected.clear()

    def _has_heard_enough(self) -> bool:
        """Whether a majority of some electorate was heard, so the missing nodes need not be."""
        core = self._context.core
        heard = {*self._answered, core.node_id}
        electorates = {core.membership.voters, *self._electorates}
        return any(len(voters & heard) >= majority(len(voters)) for voters in electorates)

    def _missing(self) -> list[NodeId]:
        return [peer for peer in self._known() if peer not in self._answered]

    def _known(self) -> list[NodeId]:
        core = self._context.core
        return sorted((core.membership.members.keys() | self._others()) - {core.node_id})

    async def _ask(self, peer: NodeId) -> None:
        """Asks ``peer`` for its frames behind the cut, up to the present end of its log. If its log grows meanwhile, it
        is asked again in the next round, together with nodes that came since. The first question begins at the end of
        this log: a peer with a log that goes on from there has everything in this one."""
        reached = self._ends.get(peer, self._context.log.last)
        end: Position | None = None
        while self._leader is None:
            answer = await self._client.ask(peer, reached, _AS_FAR_AS_IT_GOES)
            if answer is None or self._leader is not None:
                return
            if answer.leads and answer.term == self._term and peer not in self._context.core.doubted:
                self._go_by_leader(peer, answer.end)  # it writes more, which nobody needs to have
                return
            if answer.result not in _TELLS:
                return
            if reached != self._cut_behind and not _has(answer, reached):
                self._ends.pop(peer, None)  # a leader has cut what it had
                reached = self._cut_behind
                continue
            if end is None:
                end = answer.end.position
            points = self._points(answer)
            if not points:
                self._conclude(peer, answer)
                return
            if points[-1].position <= reached.position:
                return  # it contradicts itself
            is_written_on = reached.position >= end
            self._ends[peer] = reached = points[-1]
            self._least_end = further(self._least_end, reached)
            if is_written_on:
                return

    def _points(self, answer: FetchResponse) -> list[LogPoint]:
        """The points in ``answer`` that this node may have acknowledged. A log that begins behind the point asked has
        all frames up to its beginning: trimmed frames were committed."""
        if answer.result is FetchResult.TRIMMED:
            points = [answer.start]
        else:
            points = [frame.header.point for frame in answer.frames]
        return [point for point in points if point.term <= self._term]

    def _go_by_leader(self, peer: NodeId, end: LogPoint) -> None:
        self._leader, self._least_end = peer, end
        self._answered.add(peer)

    def _conclude(self, peer: NodeId, answer: FetchResponse) -> None:
        """``peer`` has no further frame that this node may have acknowledged. A peer in doubt does not count as an
        answer: the disk before it may have had one."""
        if answer.result is FetchResult.TRIMMED:  # in a later term than this node had heard of
            self._least_end = further(self._least_end, LogPoint(Position(0), Term(self._term + 1), 0))
        if peer in self._context.core.doubted:
            return
        self._answered.add(peer)
        if further(self._end, answer.end) == answer.end:
            self._electorates.add(frozenset(answer.voters))

    # What is taken -----------------------------------------------------------------------------------------------

    @property
    def _lacks_end(self) -> bool:
        last = self._context.log.last
        return further(last, self._least_end) != last

    @property
    def _has_leader(self) -> bool:
        return self._context.core.leader_id != NOBODY or self._follower.is_busy

    async def _take(self) -> None:
        """Appends the frames behind the end of this log, from the peers with the required end."""
        if not self._lacks_end or self._has_leader:
            return
        known = self._known()
        have = await asyncio.gather(*map(self._has_end, known))
        for peer in compress(known, have):
            await self._take_from(peer)

    async def _take_from(self, peer: NodeId) -> None:
        while self._lacks_end and not self._has_leader:
            end = self._context.log.last
            answer = await self._client.ask(peer, end, _AS_FAR_AS_IT_GOES)
            if answer is not None and not self._has_leader:
                self._append(answer.frames, end)
            if self._context.log.last == end:
                break

    async def _has_end(self, peer: NodeId) -> bool:
        """Whether ``peer`` holds the required end. A peer with damage right behind that end cannot say so. It counts if
        it was heard to have the end before."""
        least = self._least_end
        answer = await self._client.ask(peer, least, Position(least.position + 1))
        if answer is None:
            return False
        was_heard = answer.result is FetchResult.DAMAGED and self._ends.get(peer) == least
        return was_heard or answer.result is FetchResult.SUCCESS or answer.end == least

    def _append(self, offered: tuple[Frame, ...], previous: LogPoint) -> None:
        """As many of these frames, which follow ``previous``, as there is room for."""
        context = self._context
        frames = self._fitting(previous, offered)
        if not frames:
            return
        try:
            context.log.append(frames)
        except DLedgerError as refusal:
            if refusal.code is not Code.DISK_FULL:
                raise
            logger.warning("no room for the end of the log", extra={"group": context.group, "why": str(refusal)})
            return
        self.frames_taken += len(frames)
        context.guard(lambda: context.on_appended(frames))

    def _fitting(self, previous: LogPoint, offered: tuple[Frame, ...]) -> list[Frame]:
        """Where this log ends there still. None of a term that this node has not heard of."""
        log, max_record_bytes = self._context.log, self._context.machine.max_record_bytes(offered)
        frames: list[Frame] = []
        if log.last != previous:
            return frames
        try:
            for frame in following(offered, previous, log.state.next_index, max_record_bytes):
                if frame.header.term > self._context.core.term:
                    break
                frames.append(frame)
        except DLedgerError as refusal:
            logger.warning("frames that do not fit", extra={"group": self._context.group, "why": str(refusal)})
        return frames


def _has(answer: FetchResponse, point: LogPoint) -> bool:
    """Whether the log asked from ``point`` has that point, or frames behind it."""
    return answer.result in (FetchResult.SUCCESS, FetchResult.TRIMMED) or answer.end == point

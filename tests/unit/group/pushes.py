"""A leader's pushes made by hand, for a follower whose answers go to its ``outbox``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from dledger.common.batch import build_body, crc32c
from dledger.common.types import DEFAULT_GROUP, GENESIS, LogPoint, NodeId, Position, Term
from dledger.log.frame.frame import ControlKind, Frame, make_frame
from dledger.raft.messages import (
    Append,
    AppendResponse,
    Compare,
    CompareResponse,
    Heartbeat,
    Message,
    PushResult,
    Truncate,
    TruncateResponse,
)
from tests.support.cluster import SimCluster, SimNode
from tests.support.virtual_time import settle

LEADER = NodeId("n1")


def make_frames(count: int, *, term: int = 1, after: Sequence[Frame] = (), tag: bytes = b"") -> list[Frame]:
    """``count`` frames of one record each that follow ``after``."""
    frames = list(after)
    for _ in range(count):
        previous = frames[-1].header.point if frames else GENESIS
        index = frames[-1].header.end_index if frames else 0
        body = build_body([tag + b"%d" % index])
        frame = make_frame(
            previous, term=term, base_index=index, count=1, body=body, body_crc=crc32c(body), timestamp_ms=1
        )
        frames.append(frame)
    return frames[len(after) :]


def make_control(after: Sequence[Frame], kind: ControlKind, body: bytes = b"", *, term: int = 1) -> Frame:
    """A control frame that follows ``after``."""
    last = after[-1].header
    return make_frame(
        last.point,
        term=term,
        base_index=last.end_index,
        count=0,
        body=body,
        body_crc=crc32c(body),
        timestamp_ms=1,
        attributes=kind,
    )


def point_of(frames: Sequence[Frame]) -> LogPoint:
    return frames[-1].header.point if frames else GENESIS


class HandMadeLeader:
    """Speaks for n1 to a follower that nobody else speaks to."""

    def __init__(self, follower: SimNode, term: int = 1) -> None:
        self.follower = follower
        self.term = Term(term)
        self._requests = 0
        follower.outbox = []

    def say(self, message: Message) -> None:
        self.follower.on_message(LEADER, message)

    async def ask(self, message: Message) -> list[Message]:
        """Its answers, once everything that follows at once is done."""
        self.say(message)
        return await self.answers()

    async def answers(self) -> list[Message]:
        await settle()
        outbox = self.follower.outbox
        assert outbox is not None
        answers = [message for to, message in outbox if to == LEADER]
        outbox.clear()
        return answers

    async def push(self, *frames: Frame, commit: int = 0) -> list[Message]:
        return await self.ask(self.append(*frames, commit=commit))

    def append(self, *frames: Frame, commit: int = 0) -> Append:
        return Append(DEFAULT_GROUP, self.term, Position(commit), tuple(frames))

    def heartbeat(self, commit: int = 0) -> Heartbeat:
        return Heartbeat(DEFAULT_GROUP, self.term, Position(commit), 0)

    async def compare(self, point: LogPoint) -> list[Message]:
        return await self.ask(self.comparison(point))

    def comparison(self, point: LogPoint) -> Compare:
        self._requests += 1
        return Compare(DEFAULT_GROUP, self.term, point, self._requests)

    async def truncate(self, point: LogPoint) -> list[Message]:
        return await self.ask(self.truncation(point))

    def truncation(self, point: LogPoint) -> Truncate:
        self._requests += 1
        return Truncate(DEFAULT_GROUP, self.term, point, self._requests)

    # The answers it hopes for ------------------------------------------------------------------------------------

    def acked(self, position: int, result: PushResult = PushResult.SUCCESS) -> AppendResponse:
        return AppendResponse(DEFAULT_GROUP, self.term, result, Position(position))

    @property
    def inconsistent(self) -> AppendResponse:
        return self.acked(0, PushResult.INCONSISTENT_STATE)

    def compared(self, result: PushResult, position: int, position_term: int) -> CompareResponse:
        return CompareResponse(
            DEFAULT_GROUP, self.term, result, Position(position), Term(position_term), self._requests
        )

    def truncated(self, result: PushResult = PushResult.SUCCESS) -> TruncateResponse:
        return TruncateResponse(DEFAULT_GROUP, self.term, result, self._requests)


@asynccontextmanager
async def one_follower(term: int = 1, *, sync_delay_ms: float = 0) -> AsyncIterator[HandMadeLeader]:
    async with SimCluster(3, start=[0], sync_delay_ms=sync_delay_ms) as cluster:
        yield HandMadeLeader(cluster[0], term)


async def filled(leader: HandMadeLeader, frames: list[Frame], commit: int = 0) -> None:
    await leader.push(*frames, commit=commit)
    assert leader.follower.log.last == point_of(frames)

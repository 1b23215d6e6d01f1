"""FrameClient: asks other nodes for frames, one question at a time to each."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import count

from dledger.common.errors import DLedgerError
from dledger.common.types import LogPoint, NodeId, Position
from dledger.group.repair.frame_server import Correspondent
from dledger.log.frame.frame import check_link
from dledger.raft.messages import Fetch, FetchResponse, FetchResult

ANSWER_TIMEOUT_S = 2.0
"""At least so long; and two election timeouts, which are set longer if nodes are far from each other."""
MAX_HALVINGS = 4


class FrameClient:
    """Asks nodes for frames. After each late answer, that node is asked for half as much: down to one frame, or a
    sixteenth of a message."""

    def __init__(self, context: Correspondent) -> None:
        self._context = context
        self._timeout_s = max(ANSWER_TIMEOUT_S, 2 * context.config.timings.election_timeout_max_ms / 1000)
        # Of this process, later clients ask by higher ids: an answer to an earlier one is none to them.
        self._request_ids = count(int(context.now_s() * 1e6))
        self._halvings = Counter[NodeId]()
        self._asked: dict[tuple[NodeId, int], asyncio.Future[FetchResponse | None]] = {}

    async def ask(self, peer: NodeId, previous: LogPoint, last_wanted: Position) -> FetchResponse | None:
        """The frames of ``peer`` behind ``previous``, each linked to the one before it. None: no answer in time, or
        none that can be used."""
        request_id = next(self._request_ids)
        context = self._context
        max_bytes = max(1, context.config.limits.push_message_bytes >> self._halvings[peer])
        fetch = Fetch(context.group, context.term, previous, last_wanted, max_bytes, request_id)
        answered: asyncio.Future[FetchResponse | None] = asyncio.get_running_loop().create_future()
        self._asked[peer, request_id] = answered
        try:
            if not context.send(peer, fetch):
                return None
            asked_s = context.now_s()
            async with asyncio.timeout(self._timeout_s):
                answer = await answered
        except TimeoutError:
            self._halvings[peer] = min(self._halvings[peer] + 1, MAX_HALVINGS)
            return None
        finally:
            del self._asked[peer, request_id]
        if answer is None or not _fits(answer, previous, last_wanted):
            return None
        self._observe(peer, answer, max_bytes, context.now_s() - asked_s)
        return answer

    def _observe(self, peer: NodeId, answer: FetchResponse, max_bytes: int, took_s: float) -> None:
        """Asks for twice as much again, if that can be expected to come within half of the timeout."""
        is_full = 2 * sum(frame.header.stored_bytes for frame in answer.frames) >= max_bytes
        if is_full and took_s < self._timeout_s / 4 and self._halvings[peer]:
            self._halvings[peer] -= 1

    def on_connected(self, peer: NodeId) -> None:
        self._halvings.pop(peer, None)
        self.on_disconnected(peer)

    def on_disconnected(self, peer: NodeId) -> None:
        """What it was asked may be lost: it is not waited for."""
        for (asked, _), answered in self._asked.items():
            if asked == peer and not answered.done():
                answered.set_result(None)

    def on_response(self, sender: NodeId, answer: FetchResponse) -> None:
        asked = self._asked.get((sender, answer.request_id))
        if asked is not None and not asked.done():
            asked.set_result(answer)


def _fits(answer: FetchResponse, previous: LogPoint, last_wanted: Position) -> bool:
    if bool(answer.frames) != (answer.result is FetchResult.SUCCESS):
        return False
    try:
        for frame in answer.frames:
            check_link(previous, frame.header.base_index, frame.header, frame.raw)
            previous = frame.header.point
    except DLedgerError:
        return False
    return previous.position <= last_wanted or not answer.frames

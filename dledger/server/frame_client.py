"""FrameClient: asks other nodes for frames, one question at a time to each."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from itertools import count

from dledger.errors import DLedgerError
from dledger.raft.messages import Fetch, FetchResponse, FetchResult
from dledger.raft.patience import Patience
from dledger.server.frame_server import Correspondent
from dledger.storage.frame import check_link
from dledger.types import LogPoint, NodeId, Position

ANSWER_TIMEOUT_MS = 2_000
"""At first; then as raft/patience.py has it, for the node asked."""


class FrameClient:
    def __init__(self, context: Correspondent) -> None:
        self._context = context
        # Of this process, later clients ask by higher ids: an answer to an earlier one is none to them.
        self._request_ids = count(int(context.now_s() * 1e6))
        self._patience = defaultdict[NodeId, Patience](lambda: Patience(ANSWER_TIMEOUT_MS))
        self._asked: dict[tuple[NodeId, int], asyncio.Future[FetchResponse | None]] = {}

    async def ask(self, peer: NodeId, previous: LogPoint, last_wanted: Position) -> FetchResponse | None:
        """As many frames behind ``previous``, each linked to the one before it, as ``peer`` has and one message holds;
        fewer where ``peer`` is slow to send them. None: no answer in time, or none that can be used."""
        request_id = next(self._request_ids)
        context = self._context
        patience = self._patience[peer]
        max_bytes = max(1, int(context.config.limits.push_message_bytes * patience.share))
        fetch = Fetch(context.group, context.term, previous, last_wanted, max_bytes, request_id)
        answered = self._asked[peer, request_id] = asyncio.get_running_loop().create_future()
        try:
            if not context.send(peer, fetch):
                return None
            asked_s = context.now_s()
            async with asyncio.timeout(patience.wait_ms / 1000):
                answer = await answered
            if answer is not None:
                patience.answered((context.now_s() - asked_s) * 1000)
        except TimeoutError:
            patience.give_up()
            return None
        finally:
            del self._asked[peer, request_id]
        return answer if answer is not None and _fits(answer, previous, last_wanted) else None

    def on_connected(self, peer: NodeId) -> None:
        """What it was asked on the old connection may be lost: it is not waited for."""
        self._patience.pop(peer, None)
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

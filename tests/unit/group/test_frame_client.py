"""Who asks another node for frames: how long it waits, and for how much it asks."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from dledger.common.config import Limits, Timings
from dledger.common.types import GENESIS, NodeId, Position, Term
from dledger.group.repair.frame_client import ANSWER_TIMEOUT_S, MAX_HALVINGS, FrameClient
from dledger.group.repair.frame_server import Correspondent
from dledger.raft.messages import Fetch, FetchResponse, FetchResult
from tests.support.virtual_time import virtual_time
from tests.unit.log.harness import data_frame

PEER = NodeId("n1")
WHOLE_BYTES = 4096


class Asked:
    """What a client asks, of a node that answers after a while, or never."""

    def __init__(self, timings: Timings | None = None) -> None:
        self.sizes: list[int] = []
        self.frame_bytes = 0
        """Of the one frame in its answers."""
        self.answers_after_s: float | None = None
        self._loop = asyncio.get_running_loop()
        config = SimpleNamespace(limits=Limits(push_message_bytes=WHOLE_BYTES), timings=timings or Timings())
        context = SimpleNamespace(group="g", term=Term(1), now_s=self._loop.time, send=self._send, config=config)
        self.client = FrameClient(cast("Correspondent", context))

    def _send(self, _peer: NodeId, fetch: Fetch) -> bool:
        self.sizes.append(fetch.max_bytes)
        if self.answers_after_s is not None:
            frames = (data_frame(GENESIS, 0, [bytes(self.frame_bytes)]),)
            end = frames[-1].header.point
            answer = FetchResponse("g", Term(1), FetchResult.SUCCESS, fetch.request_id, frames, end=end)
            self._loop.call_later(self.answers_after_s, self.client.on_response, PEER, answer)
        return True

    async def ask(self) -> FetchResponse | None:
        return await self.client.ask(PEER, GENESIS, Position(9))


@pytest.mark.parametrize(("election_timeout_max_ms", "waits_s"), [(1_000, ANSWER_TIMEOUT_S), (5_000, 10)])
@virtual_time
async def test_it_waits_for_two_election_timeouts_at_least(election_timeout_max_ms: int, waits_s: float) -> None:
    asked = Asked(Timings(election_timeout_max_ms=election_timeout_max_ms))
    began_s = asyncio.get_running_loop().time()
    assert await asked.ask() is None
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(waits_s)


@virtual_time
async def test_who_does_not_answer_in_time_is_asked_for_less_and_less() -> None:
    asked = Asked()
    for _ in range(MAX_HALVINGS + 2):
        assert await asked.ask() is None
    assert asked.sizes == [4096, 2048, 1024, 512, 256, 256]


@virtual_time
async def test_and_for_more_when_what_was_asked_for_came_fast() -> None:
    asked = Asked()
    await asked.ask()
    await asked.ask()
    asked.answers_after_s, asked.frame_bytes = 0.1, 3000
    for _ in range(3):
        assert await asked.ask() is not None
    assert asked.sizes[2:] == [1024, 2048, 4096]


@pytest.mark.parametrize(("after_s", "frame_bytes"), [(0.1, 10), (0.6, 3000)], ids=["small", "slow"])
@virtual_time
async def test_not_by_an_answer_that_is_small_or_slow(after_s: float, frame_bytes: int) -> None:
    """The next whole one would take too long again."""
    asked = Asked()
    await asked.ask()
    asked.answers_after_s, asked.frame_bytes = after_s, frame_bytes
    for _ in range(3):
        assert await asked.ask() is not None
    assert asked.sizes == [4096, 2048, 2048, 2048]


@pytest.mark.parametrize("event", ["on_connected", "on_disconnected"])
@virtual_time
async def test_what_was_asked_on_a_connection_that_is_gone_is_not_waited_for(event: str) -> None:
    asked = Asked()
    pending = asyncio.create_task(asked.ask())
    await asyncio.sleep(0)
    getattr(asked.client, event)(PEER)
    async with asyncio.timeout(0.001):
        assert await pending is None


@virtual_time
async def test_a_new_connection_is_asked_for_as_much_as_a_message_holds() -> None:
    asked = Asked()
    await asked.ask()
    asked.client.on_connected(PEER)
    await asked.ask()
    assert asked.sizes == [WHOLE_BYTES, WHOLE_BYTES]

"""Who asks another node for frames: how long it waits, and for how much it asks."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from dledger.config import Limits
from dledger.raft.messages import Fetch, FetchResponse
from dledger.server.frame_client import ANSWER_TIMEOUT_MS, FrameClient
from dledger.server.frame_server import Correspondent
from dledger.types import GENESIS, NodeId, Position, Term
from tests.support.virtual_time import virtual_time

PEER = NodeId("n1")
WHOLE_BYTES = Limits().push_message_bytes


class Asked:
    """What a client asks, of a node that does not answer."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        loop = asyncio.get_running_loop()
        context = SimpleNamespace(
            group="g", term=Term(1), now_s=loop.time, send=self._send, config=SimpleNamespace(limits=Limits())
        )
        self.client = FrameClient(cast("Correspondent", context))

    def _send(self, _peer: NodeId, fetch: Fetch) -> bool:
        self.sizes.append(fetch.max_bytes)
        return True

    async def ask(self) -> FetchResponse | None:
        return await self.client.ask(PEER, GENESIS, Position(9))


@virtual_time
async def test_who_does_not_answer_gets_more_time_and_is_asked_for_less() -> None:
    asked, began_s = Asked(), asyncio.get_running_loop().time()
    for _ in range(3):
        assert await asked.ask() is None
    assert asked.sizes == [WHOLE_BYTES, WHOLE_BYTES // 2, WHOLE_BYTES // 4]
    waited_ms = (asyncio.get_running_loop().time() - began_s) * 1000
    assert round(waited_ms) == (1 + 2 + 4) * ANSWER_TIMEOUT_MS


@virtual_time
async def test_what_was_asked_on_another_connection_is_not_waited_for() -> None:
    asked = Asked()
    await asked.ask()
    pending = asyncio.create_task(asked.ask())
    await asyncio.sleep(0)
    asked.client.on_connected(PEER)
    async with asyncio.timeout(0.001):
        assert await pending is None
    await asked.ask()
    assert asked.sizes[-1] == WHOLE_BYTES

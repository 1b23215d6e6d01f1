"""Reading a node's own copy of the log, through the client."""

from __future__ import annotations

import asyncio

from dledger.client import Log
from dledger.common.types import Consistency

SETTLE_TIMEOUT_S = 60.0
_POLL_S = 0.05


async def whole_log(log: Log, node_id: str) -> list[bytes]:
    """Every record that the node holds, once it has reached the commit index."""
    _, commit_index = await log.bounds()
    async with asyncio.timeout(SETTLE_TIMEOUT_S):
        while True:
            node = (await log.status()).node(node_id)
            if node is not None and node.reachable and node.commit_index >= commit_index:
                break
            await asyncio.sleep(_POLL_S)
    batches = log.read_batches(0, commit_index + 1, consistency=Consistency.COMMITTED, node=node_id)
    return [record async for batch in batches for record in batch.records()]

"""Where the log begins and ends: what the refusal of a record that nobody can have says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dledger.client.arguments import MAX_INDEX
from dledger.client.getter import WIRE_CONSISTENCY
from dledger.client.retry import ASKS_ELSEWHERE, PASSING, Backoff
from dledger.client.rpc import unary
from dledger.errors import Code, DLedgerError, OutOfRange, error
from dledger.v1 import log_pb2

if TYPE_CHECKING:
    import random

    from dledger.client.leader import Leaders
    from dledger.types import Consistency

NO_INDEX = MAX_INDEX
"""Out of range in every log: its refusal is as consistent as an answer would be."""
ATTEMPT_TIMEOUT_MS = 2_000


async def find_bounds(
    leaders: Leaders, group: str, consistency: Consistency, timeout_ms: float, rng: random.Random
) -> tuple[int, int]:
    """The first index and the commit index. Asks again through a failover; raises the last refusal after that."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    backoff = Backoff(rng)
    while True:
        address = ""
        try:
            endpoint = await leaders.route(None, consistency)
            address = endpoint.address
            left_ms = max(1.0, (deadline - loop.time()) * 1000)
            request = log_pb2.GetRequest(group=group, index=NO_INDEX, consistency=WIRE_CONSISTENCY[consistency])
            await unary(endpoint, endpoint.log.Get, request, min(left_ms, ATTEMPT_TIMEOUT_MS))
        except OutOfRange as bounds:
            return _parse(bounds)
        except DLedgerError as refusal:
            if refusal.code in ASKS_ELSEWHERE:
                leaders.lost(address, refusal)
            if refusal.code not in PASSING or loop.time() >= deadline:
                raise
        else:
            raise error(Code.INTERNAL_ERROR, f"{address} has a record at {NO_INDEX}, which cannot be: report it")
        await asyncio.sleep(backoff.next_s())


def _parse(bounds: OutOfRange) -> tuple[int, int]:
    try:
        return int(bounds.metadata["first_index"]), int(bounds.metadata["commit_index"])
    except (KeyError, ValueError):
        text = f"the refusal does not say where the log begins and ends: {bounds}"
        raise error(Code.INTERNAL_ERROR, text) from bounds

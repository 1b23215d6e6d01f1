"""The log's beginning and end, as the refusal of an impossible record tells them; and how the log is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from dledger.client.getter import WIRE_CONSISTENCY
from dledger.client.results import SegmentInfo
from dledger.client.stubs import LogStubs
from dledger.common.errors import Code, OutOfRange, error
from dledger.common.types import MAX_INDEX, Consistency
from dledger.rpc.client.call_loop import CallLoop
from dledger.rpc.client.failures import unary
from dledger.rpc.client.retry import PASSING
from dledger.v1 import log_pb2

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from dledger.client.leader_locator import LeaderLocator
    from dledger.client.waits import Waits
    from dledger.rpc.client.channels import Endpoint

Result = TypeVar("Result")

NO_INDEX = MAX_INDEX
"""Out of range in every log: its refusal is as consistent as an answer would be."""
ATTEMPT_TIMEOUT_MS = 2_000
_PASSING = PASSING - {Code.INTERNAL_ERROR}
"""An answer that cannot be true is told at once: it is a bug."""


async def find_bounds(
    leaders: LeaderLocator,
    group: str,
    consistency: Consistency,
    node: str | None,
    *,
    timeout_ms: float,
    rng: random.Random,
    waits: Waits,
) -> tuple[int, int]:
    """The first index and the commit index, as ``node`` knows them if one is named. Asks again through a failover;
    raises the last refusal after that."""

    async def ask(endpoint: Endpoint, timeout_ms: float) -> tuple[int, int]:
        return await ask_bounds(endpoint, group, consistency, timeout_ms)

    return await _persist(leaders, node, consistency, ask, timeout_ms=timeout_ms, rng=rng, waits=waits)


async def ask_bounds(endpoint: Endpoint, group: str, consistency: Consistency, timeout_ms: float) -> tuple[int, int]:
    """As one node says. A node that answers linearizably was the leader meanwhile: a majority has confirmed it."""
    request = log_pb2.GetRequest(group=group, index=NO_INDEX, consistency=WIRE_CONSISTENCY[consistency])
    try:
        await unary(endpoint, endpoint.stub(LogStubs).log.Get, request, timeout_ms)
    except OutOfRange as bounds:
        return _parse(bounds)
    raise error(Code.INTERNAL_ERROR, f"{endpoint.address} has a record at {NO_INDEX}, which cannot be: report it")


async def list_segments(
    leaders: LeaderLocator, group: str, node: str | None, *, timeout_ms: float, rng: random.Random, waits: Waits
) -> list[SegmentInfo]:
    """The segments on ``node``, or on any node. Asks again as ``find_bounds`` does."""
    request = log_pb2.ListSegmentsRequest(group=group)

    async def ask(endpoint: Endpoint, timeout_ms: float) -> list[SegmentInfo]:
        answer = await unary(endpoint, endpoint.stub(LogStubs).log.ListSegments, request, timeout_ms)
        return [
            SegmentInfo(each.base_index, each.end_index, each.size_bytes, each.last_timestamp_ms)
            for each in answer.segments
        ]

    return await _persist(leaders, node, Consistency.COMMITTED, ask, timeout_ms=timeout_ms, rng=rng, waits=waits)


async def _persist(
    leaders: LeaderLocator,
    node: str | None,
    consistency: Consistency,
    ask: Callable[[Endpoint, float], Awaitable[Result]],
    *,
    timeout_ms: float,
    rng: random.Random,
    waits: Waits,
) -> Result:
    """Asks until somebody answers. At the deadline it raises why nobody did."""
    calls = CallLoop(timeout_ms, rng, passing=_PASSING, on_wait=waits.refused)
    return await calls.ask(leaders, lambda: leaders.route(node, consistency), ask, attempt_ms=ATTEMPT_TIMEOUT_MS)


def _parse(bounds: OutOfRange) -> tuple[int, int]:
    try:
        return int(bounds.metadata["first_index"]), int(bounds.metadata["commit_index"])
    except (KeyError, ValueError):
        text = f"the refusal does not say where the log begins and ends: {bounds}"
        raise error(Code.INTERNAL_ERROR, text) from bounds

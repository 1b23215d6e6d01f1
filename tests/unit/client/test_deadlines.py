"""Every call ends in time, whatever it waits for: its own timeout, or the client's."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dledger import client
from dledger.common.errors import Code, DeadlineExceeded, DLedgerError
from tests.unit.client.fake_server import FakeCluster

Call = Callable[..., Coroutine[Any, Any, object]]
SOON_S = 0.8
"""Less than a node has for an answer."""


async def read(log: client.Log, **timeout: float) -> object:
    return await anext(log.read(**timeout))  # type: ignore[arg-type]


async def follow(log: client.Log, **timeout: float) -> object:
    return await anext(log.read(follow=True, **timeout))  # type: ignore[arg-type]


async def open_producer(log: client.Log) -> object:
    return await log.producer("job").__aenter__()


CALLS: list[Call] = [
    client.Log.bounds,
    client.Log.segments,
    client.Log.metadata,
    client.Log.status,
    read,
    follow,
]


async def ends_soon(call: asyncio.Future[Any]) -> DLedgerError:
    done, _ = await asyncio.wait({call}, timeout=SOON_S)
    assert done, "the call goes on"
    refusal = call.exception()
    assert isinstance(refusal, DLedgerError)
    return refusal


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_of_silent_nodes_ends_with_its_timeout(
    cluster: FakeCluster, log: client.Log, leap: Callable[[float], None], call: Call
) -> None:
    cluster.faults.silent = frozenset({"GetMetadata"})
    waiting = asyncio.ensure_future(call(log, timeout_ms=60_000))
    await cluster.heard("GetMetadata")
    leap(60)
    assert (await ends_soon(waiting)).code is Code.TIMEOUT


@pytest.mark.parametrize("call", [*CALLS, open_producer])
async def test_a_call_without_a_timeout_has_the_clients(
    cluster: FakeCluster, log: client.Log, leap: Callable[[float], None], call: Call
) -> None:
    cluster.faults.silent = frozenset({"GetMetadata"})
    waiting = asyncio.ensure_future(call(log))
    await cluster.heard("GetMetadata")
    leap(5)
    assert (await ends_soon(waiting)).code is Code.TIMEOUT


async def test_what_some_nodes_say_of_the_members_is_had_although_the_leader_is_silent(
    cluster: FakeCluster, log: client.Log
) -> None:
    cluster.nodes[0].is_silent = True
    assert (await log.metadata(timeout_ms=1_000)).leader_id == "n0"


async def test_a_status_lists_who_does_not_answer_in_time(cluster: FakeCluster, log: client.Log) -> None:
    cluster.nodes[0].is_silent = True
    status = await asyncio.wait_for(log.status(timeout_ms=400), timeout=1)
    assert [node.reachable for node in status.nodes] == [False, True, True]


async def all_answered(cluster: FakeCluster) -> None:
    """Who asks a second time has heard the first answer."""
    for node in cluster.nodes:
        async with node.received:
            while node.metadata_calls < 2:
                await node.received.wait()


async def test_a_timeout_says_why_nothing_came_meanwhile(
    cluster: FakeCluster, log: client.Log, leap: Callable[[float], None]
) -> None:
    cluster.lead(None)
    waiting = asyncio.ensure_future(log.bounds(timeout_ms=60_000))
    await all_answered(cluster)
    leap(60)
    assert "no leader is known" in str(await ends_soon(waiting))


async def test_a_producer_that_is_not_opened_in_time_says_why(
    cluster: FakeCluster, log: client.Log, leap: Callable[[float], None]
) -> None:
    cluster.lead(None)
    waiting = asyncio.ensure_future(open_producer(log))
    await all_answered(cluster)
    leap(5)
    assert re.search(r"\d\.\d s: no leader is known", str(await ends_soon(waiting)))


async def test_a_timeout_says_how_long_it_was(cluster: FakeCluster, log: client.Log) -> None:
    cluster.faults.silent = frozenset({"GetMetadata"})
    with pytest.raises(DeadlineExceeded, match="within 100 ms"):
        await log.bounds(timeout_ms=100)

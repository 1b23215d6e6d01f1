"""The store on real nodes, by etcd's API: any node takes any call, and kills lose nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from signal import Signals
from typing import Any

import grpc
import pytest
import pytest_asyncio

from dledger.common.types import META_GROUP
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.etcdpb import rpc_pb2_grpc as stubs
from dledger.store.keys import prefix_end
from tests.integration.conftest import Tell
from tests.integration.nodes import CALL_TIMEOUT_S, Nodes, eventually, leader_of, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

KILLS = 3
MOST_GAP_S = 1.5
"""Until a put succeeds behind kill -9 of the leader, at the default timings."""


class Etcd:
    """etcd's services on one node."""

    def __init__(self, nodes: Nodes, node_id: str) -> None:
        channel = nodes[node_id].channel
        self.kv: Any = stubs.KVStub(channel)
        self.lease: Any = stubs.LeaseStub(channel)
        self.watch: Any = stubs.WatchStub(channel)
        self.maintenance: Any = stubs.MaintenanceStub(channel)

    async def put(self, key: str, value: str = "", lease: int = 0) -> int:
        """The revision of it."""
        request = rpc.PutRequest(key=key.encode(), value=value.encode(), lease=lease)
        return int((await self.kv.Put(request, timeout=CALL_TIMEOUT_S)).header.revision)

    async def pairs(self, prefix: str, *, serializable: bool = False) -> dict[str, str]:
        key = prefix.encode()
        request = rpc.RangeRequest(key=key, range_end=prefix_end(key), serializable=serializable)
        found = await self.kv.Range(request, timeout=CALL_TIMEOUT_S)
        return {each.key.decode(): each.value.decode() for each in found.kvs}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    async with running(tmp_path_factory.mktemp("store")) as started:
        yield started


class Puts:
    """One client that puts one key after the other, by whichever node answers."""

    def __init__(self, nodes: Nodes, prefix: str) -> None:
        self._nodes = nodes
        self._prefix = prefix
        self.acknowledged: list[tuple[float, str]] = []
        self.asked = 0
        self._progress = asyncio.Condition()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in range(1_000_000):
            key = f"{self._prefix}{number:06}"
            self.asked = number + 1
            while not await self._try(key):
                pass
            async with self._progress:
                self.acknowledged.append((loop.time(), key))
                self._progress.notify_all()

    async def _try(self, key: str) -> bool:
        """A put of the same pair twice is one pair."""
        for node_id in self._nodes.running:
            try:
                await Etcd(self._nodes, node_id).put(key, "1")
            except grpc.aio.AioRpcError as failure:
                if failure.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
            else:
                return True
        await asyncio.sleep(0.01)  # no node answers, or none leads
        return False

    async def next(self) -> None:
        async with self._progress:
            seen = len(self.acknowledged)
            await self._progress.wait_for(lambda: len(self.acknowledged) > seen)

    def longest_gap_s(self, since_s: float) -> float:
        times = [since_s, *(at_s for at_s, _ in self.acknowledged if at_s > since_s)]
        return max(later - sooner for sooner, later in pairwise(times))


@asynccontextmanager
async def putting(nodes: Nodes, prefix: str) -> AsyncIterator[Puts]:
    puts = Puts(nodes, prefix)
    task = asyncio.ensure_future(puts.run())
    try:
        yield puts
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()


async def test_a_put_by_any_node_is_read_by_every_other(nodes: Nodes) -> None:
    for writer in nodes.ids:
        await Etcd(nodes, writer).put("shared", writer)
        for reader in nodes.ids:
            assert await Etcd(nodes, reader).pairs("shared") == {"shared": writer}


async def test_a_put_by_a_follower_is_there_at_once_for_its_own_reads(nodes: Nodes) -> None:
    for node_id in nodes.ids:
        await Etcd(nodes, node_id).put("own", node_id)
        assert await Etcd(nodes, node_id).pairs("own", serializable=True) == {"own": node_id}


async def test_kills_of_the_leader_lose_no_put_and_double_no_event(nodes: Nodes, tell: Tell) -> None:
    gaps_s = []
    async with putting(nodes, "kill/") as puts:
        await puts.next()
        for _ in range(KILLS):
            leader = await leader_of(nodes, META_GROUP)
            killed_s = asyncio.get_running_loop().time()
            await nodes.cluster.kill(leader)
            await puts.next()
            gaps_s.append(puts.longest_gap_s(killed_s))
            await nodes.restart(leader)
    tell(f"puts went on {', '.join(f'{each:.2f}' for each in gaps_s)} s after kill -9 of the leader")
    acknowledged = {key for _, key in puts.acknowledged}
    for node_id in nodes.ids:
        there = set(await Etcd(nodes, node_id).pairs("kill/"))
        assert acknowledged <= there
        assert len(there) <= puts.asked
    assert max(gaps_s) < MOST_GAP_S


async def test_a_watch_on_a_survivor_sees_every_put_once_and_in_order(nodes: Nodes) -> None:
    leader = await leader_of(nodes, META_GROUP)
    [survivor, _] = [each for each in nodes.ids if each != leader]
    request = rpc.WatchRequest(create_request=rpc.WatchCreateRequest(key=b"seen/", range_end=prefix_end(b"seen/")))
    stream = Etcd(nodes, survivor).watch.Watch()
    await stream.write(request)
    assert (await stream.read()).created
    async with putting(nodes, "seen/") as puts:
        await puts.next()
        await nodes.cluster.kill(leader)
        for _ in range(20):
            await puts.next()
    await nodes.restart(leader)
    last = max(await Etcd(nodes, survivor).pairs("seen/"))
    seen: list[tuple[int, str]] = []
    async with asyncio.timeout(CALL_TIMEOUT_S):
        while not seen or seen[-1][1] != last:
            response = await stream.read()
            seen += [(each.kv.mod_revision, each.kv.key.decode()) for each in response.events]
    stream.cancel()
    revisions = [revision for revision, _ in seen]
    assert revisions == sorted(set(revisions))
    assert {key for _, key in puts.acknowledged} <= {key for _, key in seen}


async def test_a_lease_that_is_kept_alive_outlives_its_leader_and_ends_when_nobody_keeps_it(nodes: Nodes) -> None:
    leader = await leader_of(nodes, META_GROUP)
    [survivor, _] = [each for each in nodes.ids if each != leader]
    etcd = Etcd(nodes, survivor)
    lease = (await etcd.lease.LeaseGrant(rpc.LeaseGrantRequest(TTL=2), timeout=CALL_TIMEOUT_S)).ID
    await etcd.put("leased", "1", lease)
    await nodes.cluster.kill(leader)
    stream = etcd.lease.LeaseKeepAlive()
    for _ in range(6):
        await stream.write(rpc.LeaseKeepAliveRequest(ID=lease))
        assert (await stream.read()).TTL == 2
        await asyncio.sleep(0.5)
        assert await etcd.pairs("leased")
    stream.cancel()

    async def gone() -> bool:
        return not await etcd.pairs("leased")

    await eventually(gone, "the lease has ended, with its key")
    await nodes.restart(leader)


async def test_everything_is_there_after_all_nodes_were_killed_at_once(tmp_path: Path) -> None:
    async with running(tmp_path) as nodes:
        etcd = Etcd(nodes, nodes.ids[0])
        for number in range(20):
            await etcd.put(f"durable/{number}", str(number))
        await nodes.terminate(*nodes.ids, number=Signals.SIGKILL)
        await nodes.restart(*nodes.ids)
        for node_id in nodes.ids:
            there = await Etcd(nodes, node_id).pairs("durable/")
            assert there == {f"durable/{number}": str(number) for number in range(20)}


async def test_all_nodes_have_the_same_hash_at_a_revision(nodes: Nodes) -> None:
    revision = await Etcd(nodes, nodes.ids[0]).put("hashed", "1")
    for node_id in nodes.ids:
        await Etcd(nodes, node_id).pairs("hashed")  # it has applied that
    request = rpc.HashKVRequest(revision=revision)
    answers = [await Etcd(nodes, each).maintenance.HashKV(request, timeout=CALL_TIMEOUT_S) for each in nodes.ids]
    assert len({each.hash for each in answers}) == 1

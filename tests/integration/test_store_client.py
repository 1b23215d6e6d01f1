"""The SDK of the store on real nodes, while their leader is killed: each change once, each event once, locks kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

import dledger
from dledger import Cluster, Compare, Op, Store
from dledger.client.store import WatchEvent
from dledger.common.types import META_GROUP
from tests.integration.nodes import Nodes, leader_of, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

WORKERS = 32
KILLS = 2
TIMEOUT_MS = 20_000


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    async with running(tmp_path_factory.mktemp("store")) as started:
        yield started


@pytest_asyncio.fixture(loop_scope="module")
async def cluster(nodes: Nodes) -> AsyncIterator[Cluster]:
    endpoints = [nodes[each].address for each in nodes.ids]
    async with dledger.connect_cluster(endpoints, timeout_ms=TIMEOUT_MS) as cluster:
        yield cluster


@pytest_asyncio.fixture(loop_scope="module")
async def store(cluster: Cluster) -> Store:
    return cluster.store()


class Work:
    """Workers that change a key each, one change after the other, until they are told to stop."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._stops = False
        self.done: dict[str, int] = {f"{prefix}{number}": 0 for number in range(WORKERS)}
        """How many changes each key was told to have had."""
        self._tasks = [asyncio.ensure_future(self._run(key)) for key in self.done]

    async def _run(self, key: str) -> None:
        while not self._stops:
            done = await self._store.txn([], [Op.put(key, ""), Op.put(f"{self._prefix}all", "")])
            assert done.succeeded
            self.done[key] += 1

    async def stop(self) -> None:
        self._stops = True
        await asyncio.gather(*self._tasks)


async def kill_leaders(nodes: Nodes) -> None:
    for _ in range(KILLS):
        await asyncio.sleep(0.5)  # some work is under way, at any point
        leader = await leader_of(nodes, META_GROUP)
        await nodes.cluster.kill(leader)
        await asyncio.sleep(1.0)
        await nodes.restart(leader)


async def test_every_change_is_carried_out_once_while_leaders_are_killed(store: Store, nodes: Nodes) -> None:
    work = Work(store, "once/")
    await kill_leaders(nodes)
    await work.stop()
    versions = {pair.key.decode(): pair.version for pair in await store.range(prefix="once/")}
    assert versions.pop("once/all") == sum(work.done.values())
    assert versions == work.done
    assert min(work.done.values()) > KILLS


async def test_a_transaction_that_compares_gives_its_first_answer(store: Store, nodes: Nodes) -> None:
    """A counter by compare and put: an answer of a retry that was the second one would say that it failed."""
    await store.put("counter", "0")
    counted = 0
    stops = asyncio.Event()

    async def count() -> None:
        nonlocal counted
        while not stops.is_set():
            found = await store.get("counter")
            assert found is not None
            assert int(found.value) == counted
            done = await store.txn(
                [Compare.modified("counter", "==", found.mod_revision)], [Op.put("counter", str(counted + 1))]
            )
            assert done.succeeded
            counted += 1

    counting = asyncio.ensure_future(count())
    await kill_leaders(nodes)
    stops.set()
    await counting
    assert counted > KILLS


async def test_a_watch_tells_every_change_once_while_leaders_are_killed(store: Store, nodes: Nodes) -> None:
    seen: list[WatchEvent] = []
    watch = store.watch(prefix="seen/")
    first = await watch.started()
    work = Work(store, "seen/")
    killing = asyncio.ensure_future(kill_leaders(nodes))
    last = 0
    async for batch in watch:
        assert batch.events[0].revision >= first
        seen += batch
        if killing.done() and not last:
            await work.stop()
            last = await store.put("seen/end", "")
        if last and batch.revision >= last:
            break
    keys = [(event.revision, event.key) for event in seen]
    assert len(set(keys)) == len(keys)
    assert [event.revision for event in seen] == sorted(event.revision for event in seen)
    versions = [event.pair.version for event in seen if event.key == b"seen/all"]
    assert versions == list(range(1, sum(work.done.values()) + 1))


async def test_a_lock_is_held_by_one_at_a_time_while_leaders_are_killed(store: Store, nodes: Nodes) -> None:
    tokens: list[int] = []
    inside = 0
    stops = asyncio.Event()

    async def take() -> None:
        nonlocal inside
        while not stops.is_set():
            async with store.lock("one", 10) as lock:
                inside += 1
                assert inside == 1
                tokens.append(lock.token)
                assert (await store.txn([lock.compare], [Op.put("locked", str(lock.token))])).succeeded
                inside -= 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(take())
        await kill_leaders(nodes)
        stops.set()
    assert tokens == sorted(set(tokens))
    found = await store.get("locked")
    assert found is not None
    assert int(found.value) == tokens[-1]


async def test_a_lease_is_kept_alive_by_its_client_while_leaders_are_killed(store: Store, nodes: Nodes) -> None:
    async with store.lease(5) as lease:
        await store.put("leased", "", lease=lease)
        await kill_leaders(nodes)
        await asyncio.sleep(5)
        lease.check()
        assert await store.get("leased")
    assert await store.get("leased") is None


async def test_the_status_is_told_and_a_copy_is_made(store: Store) -> None:
    status = await store.status()
    assert status.revision > 1
    assert status.keys == await store.count()
    assert sum([len(blob) async for blob in store.backup()]) > status.keys

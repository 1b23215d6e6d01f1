"""What reads give: keys as of one revision, however many pages they come in."""

from __future__ import annotations

import asyncio

import pytest

from dledger.client.store import KeyValue, Store
from dledger.common.errors import Compacted, DLedgerError, FutureRevision, InvalidRequest, Unavailable
from tests.support.store_nodes import StoreNodes


async def fill(store: Store, count: int) -> None:
    await asyncio.gather(*(store.put(f"k{number:04}", f"v{number}") for number in range(count)))


async def test_a_key_comes_back_with_its_revisions(store: Store) -> None:
    first = await store.put("a", "1")
    second = await store.put("a", b"\xff")
    assert await store.get("a") == KeyValue(b"a", b"\xff", first, second, 2)
    assert await store.get("a", first) == KeyValue(b"a", b"1", first, first, 1)


async def test_a_key_that_is_not_there_is_none(store: Store) -> None:
    assert await store.get("a") is None


async def test_a_read_of_the_past_is_refused_once_it_is_compacted(store: Store) -> None:
    first = await store.put("a", "1")
    await store.compact(await store.put("a", "2"))
    with pytest.raises(Compacted):
        await store.get("a", first)


async def test_a_read_of_the_future_is_refused(store: Store) -> None:
    with pytest.raises(FutureRevision):
        await store.get("a", 1_000)


async def test_a_range_has_its_keys_in_order(store: Store) -> None:
    await fill(store, 10)
    await store.put("other", "")
    pairs = await store.range(prefix="k")
    assert [pair.key for pair in pairs] == [f"k{number:04}".encode() for number in range(10)]
    assert (pairs.total, pairs.more, pairs.revision) == (10, False, 12)


async def test_a_range_has_bounds_a_limit_and_a_direction(store: Store) -> None:
    await fill(store, 10)
    assert [pair.key for pair in await store.range(start="k0003", end="k0005")] == [b"k0003", b"k0004"]
    backwards = await store.range(prefix="k", limit=2, descending=True)
    assert [pair.key for pair in backwards] == [b"k0009", b"k0008"]
    assert backwards.more
    assert [pair.value for pair in await store.range(prefix="k", limit=1, keys_only=True)] == [b""]


async def test_without_arguments_a_range_is_everything(store: Store) -> None:
    await store.put(b"\0", "")
    await store.put(b"\xff\xff", "")
    assert len(await store.range()) == 2
    assert await store.count() == 2


@pytest.mark.parametrize("descending", [False, True])
async def test_all_pages_of_a_range_are_of_one_revision(store: Store, descending: bool) -> None:
    await fill(store, 300)
    seen: list[KeyValue] = []
    revisions = set()
    async for page in store.pages(prefix="k", descending=descending):
        seen += page
        revisions.add(page.revision)
        await store.put(f"k{len(seen):04}.5", "too late")
    assert [pair.key for pair in seen] == sorted((pair.key for pair in seen), reverse=descending)
    assert len(seen) == 300
    assert revisions == {301}


async def test_a_count_takes_a_range_and_a_revision(store: Store) -> None:
    await fill(store, 5)
    assert (await store.count(prefix="k"), await store.count(prefix="k", revision=3)) == (5, 2)


async def test_reads_go_on_when_their_node_is_gone(store: Store, nodes: StoreNodes) -> None:
    await store.put("a", "1")
    for node in nodes.nodes:
        await node.kill()
        found = await store.get("a")
        assert found is not None
        await node.start()


async def test_a_read_that_nobody_answers_is_unavailable(store: Store, nodes: StoreNodes) -> None:
    await nodes.stop()
    with pytest.raises(Unavailable):
        await store.get("a", timeout_ms=300)


@pytest.mark.parametrize("revision", [-1, "1", True])
async def test_a_wrong_argument_is_refused_before_anything_is_sent(store: Store, revision: int) -> None:
    with pytest.raises(InvalidRequest):
        await store.get("a", revision)


async def test_the_status_is_the_stores(store: Store) -> None:
    await fill(store, 3)
    async with store.watch("a"):
        status = await store.status()
    assert (status.revision, status.compact_revision, status.keys, status.leases, status.watches) == (4, 0, 3, 0, 1)
    assert status.size_bytes > 0


async def test_without_a_cluster_that_is_open_nothing_is_read(store: Store, cluster: object) -> None:
    await cluster.close()  # type: ignore[attr-defined]
    with pytest.raises(DLedgerError, match="client was closed"):
        await store.get("a")

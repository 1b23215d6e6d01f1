"""Watches: every change once, in order, without a gap, over reconnects and the loss of nodes."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from dledger import client
from dledger.client.store import Op, Store, Watch, WatchBatch, WatchEvent
from dledger.client.store import watch as watching
from dledger.common.errors import Compacted, InvalidRequest, Unavailable
from tests.support.store_nodes import StoreNodes, TroubledBackend, reached


async def told(watch: Watch, count: int) -> list[WatchEvent]:
    """So many events, at least."""
    events: list[WatchEvent] = []
    async for batch in watch:
        events += batch
        if len(events) >= count:
            break
    return events


async def test_a_watch_tells_puts_and_deletions(store: Store) -> None:
    async with store.watch("a") as watch:
        await store.put("a", "1")
        await store.put("b", "not watched")
        await store.put("a", "2")
        await store.delete("a")
        events = await told(watch, 3)
    assert [(each.revision, each.is_create, each.is_delete, each.value) for each in events] == [
        (2, True, False, b"1"),
        (4, False, False, b"2"),
        (5, False, True, b""),
    ]


async def test_a_watch_begins_with_the_present_unless_it_is_told_a_revision(store: Store) -> None:
    await store.put("a", "1")
    async with store.watch(prefix="") as watch:
        assert await watch.started() == 3
        await store.put("a", "2")
        assert [each.value for each in await told(watch, 1)] == [b"2"]
    assert [each.value for each in await told(store.watch(prefix="", start_revision=1), 2)] == [b"1", b"2"]


async def test_no_revision_is_split_over_batches(store: Store) -> None:
    large = "x" * 400_000
    for _ in range(3):
        await store.txn([], [Op.put(f"k{number}", large) for number in range(3)])
    batches: list[WatchBatch] = []
    async for batch in store.watch(prefix="k", start_revision=1):
        batches.append(batch)
        if batch.revision >= 4:
            break
    revisions = [{each.revision for each in batch} for batch in batches]
    assert sum(map(len, batches)) == 9
    assert all(not one & other for one, other in pairwise(revisions))


async def test_a_revision_that_comes_in_fragments_is_one_batch(store: Store) -> None:
    for number in range(10):
        await store.put(f"k{number}", "x" * 1_000_000)
    await store.delete(prefix="k")
    async for batch in store.watch(prefix="k", start_revision=12, before=True):
        assert len(batch) == 10
        assert all(each.before is not None and len(each.before.value) == 1_000_000 for each in batch)
        break


async def test_a_watch_tells_what_a_key_was_before_if_it_is_asked_to(store: Store) -> None:
    await store.put("a", "1")
    await store.put("a", "2")
    plain, asked = store.watch("a", start_revision=3), store.watch("a", start_revision=3, before=True)
    assert (await told(plain, 1))[0].before is None
    before = (await told(asked, 1))[0].before
    assert before is not None
    assert before.value == b"1"


async def test_a_watch_goes_on_without_a_gap_or_a_double_while_nodes_are_killed(
    store: Store, nodes: StoreNodes
) -> None:
    async def change() -> None:
        for number in range(200):
            await store.put("a", str(number))
            if number % 50 == 25:
                await nodes.kill_each_in_turn()

    async with store.watch("a") as watch:
        changing = asyncio.create_task(change())
        events = await told(watch, 200)
        await changing
    assert [int(each.value) for each in events] == list(range(200))


async def test_what_changed_while_a_watch_had_no_node_is_told_behind(store: Store, nodes: StoreNodes) -> None:
    async with store.watch("a") as watch:
        await store.put("a", "1")
        assert len(await told(watch, 1)) == 1
        await nodes.kill_each_in_turn()
        await store.put("a", "2")
        await store.put("a", "3")
        assert [each.value for each in await told(watch, 2)] == [b"2", b"3"]


async def test_a_watch_of_what_is_compacted_says_where_the_history_begins(store: Store) -> None:
    for number in range(5):
        await store.put("a", str(number))
    await store.compact(4)
    with pytest.raises(Compacted) as raised:
        await told(store.watch("a", start_revision=2), 1)
    assert raised.value.compact_revision == 4


async def test_a_watch_that_missed_changes_which_are_compacted_fails(store: Store, nodes: StoreNodes) -> None:
    async with store.watch("a") as watch:
        await store.put("a", "1")
        assert len(await told(watch, 1)) == 1
        for number in range(5):
            await store.put("a", str(number))
        await store.compact(6)
        await nodes.kill_each_in_turn()
        with pytest.raises(Compacted):
            await told(watch, 1)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "PROGRESS_S", 0.01)


@pytest.mark.usefixtures("hurried")
async def test_an_idle_watch_passes_over_what_is_compacted_of_other_keys(store: Store, nodes: StoreNodes) -> None:
    async with store.watch("a") as watch:
        reading = asyncio.create_task(told(watch, 1))
        for number in range(5):
            await store.put("b", str(number))
        await reached(lambda: watch.next_revision >= 7)
        await store.compact(6)
        await nodes.kill_each_in_turn()
        await store.put("a", "here")
        assert [each.value for each in await reading] == [b"here"]


async def test_a_watch_that_no_node_serves_fails_in_the_end(store: Store, nodes: StoreNodes) -> None:
    watch = store.watch("a", timeout_ms=300)
    await watch.started()
    await nodes.stop()
    with pytest.raises(Unavailable):
        await told(watch, 1)


async def test_a_node_without_a_leader_does_not_keep_a_watch(store: Store, backend: TroubledBackend) -> None:
    async with store.watch("a", timeout_ms=300) as watch:
        backend.lost.set()
        with pytest.raises(Unavailable, match="no leader"):
            await told(watch, 1)


async def test_a_program_that_leaves_the_loop_ends_the_watch_at_its_node(
    store: Store, backend: TroubledBackend
) -> None:
    await store.put("a", "1")
    await told(store.watch("a", start_revision=1), 1)
    await reached(lambda: not backend.watches.count())


async def test_a_watch_that_is_closed_ends_its_loop(store: Store) -> None:
    watch = store.watch("a")
    await watch.started()
    asyncio.get_running_loop().call_soon(watch.close)
    assert await told(watch, 1) == []


async def test_closing_the_client_ends_a_watch_with_an_error(store: Store, cluster: client.Cluster) -> None:
    watch = store.watch("a")
    await watch.started()
    reading = asyncio.create_task(told(watch, 1))
    await asyncio.sleep(0)
    await cluster.close()
    with pytest.raises(Unavailable, match="client was closed"):
        await reading


async def test_a_watch_names_a_key_or_a_range(store: Store) -> None:
    with pytest.raises(InvalidRequest):
        store.watch("a", prefix="b")
    with pytest.raises(InvalidRequest):
        store.watch("a", start_revision=-1)

"""Locks and elections: etcd's recipe, with a token that keeps a former holder out."""

from __future__ import annotations

import asyncio

import pytest

from dledger.client.store import Compare, Op, Store
from dledger.common.errors import DeadlineExceeded, InvalidRequest, LeaseLost
from tests.support.store_nodes import StoreNodes, TroubledBackend, reached


async def test_one_at_a_time_holds_a_lock(store: Store) -> None:
    inside = 0
    tokens: list[int] = []

    async def work() -> None:
        nonlocal inside
        async with store.lock("job") as lock:
            inside += 1
            assert inside == 1
            tokens.append(lock.token)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(work() for _ in range(8)))
    assert tokens == sorted(set(tokens))
    assert await store.count() == 0


async def test_the_key_of_a_lock_is_where_etcds_clients_look_for_it(store: Store) -> None:
    async with store.lock("job") as lock:
        pairs = await store.range(prefix="job/")
        assert [pair.key for pair in pairs] == [b"job/%x" % lock.lease.id] == [lock.key]
        assert pairs[0].create_revision == lock.token
        assert pairs[0].value == b""
        assert pairs[0].lease == lock.lease.id


async def test_a_token_keeps_a_former_holder_out(store: Store) -> None:
    """The example of the documentation."""
    async with store.lock("account") as lock:
        done = await store.txn([lock.compare], [Op.put("balance", "17")])
        assert done.succeeded
        token, key = lock.token, lock.key
    async with store.lock("account") as lock:
        assert lock.token > token
        late = await store.txn([Compare.created(key, "==", token)], [Op.put("balance", "0")])
        assert not late.succeeded
    found = await store.get("balance")
    assert found is not None
    assert found.value == b"17"


async def test_a_lock_is_waited_for_in_the_order_of_the_queue(store: Store) -> None:
    order: list[int] = []

    async def work(number: int) -> None:
        async with store.lock("job"):
            order.append(number)

    async with store.lock("job"):
        waiting = []
        for number in range(4):
            waiting.append(asyncio.create_task(work(number)))
            while await store.count(prefix="job/") < number + 2:
                pass
    await asyncio.gather(*waiting)
    assert order == [0, 1, 2, 3]


async def test_a_lock_that_is_not_free_in_time_leaves_nothing_behind(store: Store) -> None:
    async with store.lock("job"):
        with pytest.raises(DeadlineExceeded, match="the lock was not free within 100 ms"):
            async with store.lock("job", wait_ms=100):
                pass
        assert await store.count() == 1
        assert len(await store.leases()) == 1


async def test_a_caller_that_is_cancelled_leaves_the_queue(store: Store) -> None:
    async with store.lock("job"):
        waiting = asyncio.create_task(store.lock("job").__aenter__())
        while await store.count() < 2:
            pass
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await store.count() == 1


async def test_a_lock_whose_lease_is_gone_is_lost_and_the_next_one_has_it(store: Store) -> None:
    lock = await store.lock("job", ttl_s=2).__aenter__()
    await store.revoke_lease(lock.lease)
    async with store.lock("job") as next_lock:
        assert next_lock.token > lock.token
    await lock.lease.lost()
    assert not lock.is_held
    with pytest.raises(LeaseLost):
        lock.check()
    with pytest.raises(LeaseLost, match="the lock was lost"):
        await lock.__aexit__(None, None, None)


async def test_one_that_loses_its_lease_while_it_waits_is_told(store: Store, backend: TroubledBackend) -> None:
    async with store.lock("job"):
        waiting = asyncio.create_task(store.lock("job", ttl_s=2).__aenter__())
        while await store.count() < 2:
            pass
        last = max(backend.store.leases, key=lambda lease: lease.serial)
        await store.revoke_lease(last.id)
        with pytest.raises(LeaseLost):
            await waiting


async def test_a_lock_may_go_with_a_lease_of_the_callers(store: Store) -> None:
    async with store.lease(60) as lease:
        async with store.lock("a", lease=lease) as one, store.lock("b", lease=lease) as two:
            assert {one.key, two.key} == {b"a/%x" % lease.id, b"b/%x" % lease.id}
        assert await store.count() == 0
        assert lease.is_alive


async def test_a_lock_is_held_over_the_loss_of_nodes(store: Store, nodes: StoreNodes) -> None:
    async with store.lock("job", ttl_s=5) as lock:
        waiting = asyncio.create_task(store.lock("job").__aenter__())
        await nodes.kill_each_in_turn()
        assert lock.is_held
        assert not waiting.done()
    next_lock = await waiting
    assert next_lock.is_held
    await next_lock.__aexit__(None, None, None)


@pytest.mark.parametrize("name", ["", 7])
async def test_a_name_that_is_none_is_refused(store: Store, name: str) -> None:
    with pytest.raises(InvalidRequest, match="name is"):
        store.lock(name)
    with pytest.raises(InvalidRequest, match="name is"):
        store.election(name)


# Elections ------------------------------------------------------------------------------------------------------------


async def test_the_elected_is_known_to_all(store: Store) -> None:
    election = store.election("boss")
    assert await election.leader() is None
    async with election.campaign("one") as leadership:
        leader = await election.leader()
        assert leader is not None
        assert (leader.key, leader.value, leader.create_revision) == (leadership.key, b"one", leadership.token)
        await leadership.proclaim("two")
        leader = await election.leader()
        assert leader is not None
        assert leader.value == b"two"
        assert leader.create_revision == leadership.token
    assert await election.leader() is None


async def test_the_next_one_leads_when_the_leader_resigns(store: Store) -> None:
    election = store.election("boss")
    async with election.campaign("one"):
        waiting = asyncio.create_task(election.campaign("two").__aenter__())
        while await store.count() < 2:
            pass
        assert not waiting.done()
    leadership = await waiting
    leader = await election.leader()
    assert leader is not None
    assert leader.value == b"two"
    await leadership.__aexit__(None, None, None)


async def test_one_that_leads_no_more_proclaims_nothing(store: Store) -> None:
    async with store.election("boss").campaign("one") as leadership:
        await store.delete(leadership.key)
        with pytest.raises(LeaseLost, match="nothing was proclaimed"):
            await leadership.proclaim("still me")


async def test_observers_see_the_leaders(store: Store) -> None:
    election = store.election("boss")
    seen: list[bytes] = []

    async def observe() -> None:
        async for leader in election.observe():
            seen.append(leader.value)  # noqa: PERF401  # looked at while it grows

    observing = asyncio.create_task(observe())
    async with election.campaign("one") as leadership:
        await reached(lambda: seen == [b"one"])
        await leadership.proclaim("two")
        await reached(lambda: seen == [b"one", b"two"])
    async with election.campaign("three"):
        await reached(lambda: seen == [b"one", b"two", b"three"])
    observing.cancel()

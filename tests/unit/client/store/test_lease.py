"""Leases: kept alive in the background, and never said to be alive when the store may have ended them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from dledger import client
from dledger.client.store import Op, Store
from dledger.client.store import lease as leases
from dledger.client.store.lease import Kept, Lease
from dledger.common.errors import Code, InvalidRequest, LeaseLost, LeaseNotFound, Unavailable, error
from tests.support.store_nodes import StoreNodes, TroubledBackend
from tests.support.virtual_time import virtual_time

TTL_S = 12


class FakeCalls:
    """The store, as a lease knows it: answers keepalives behind ``delay_s``, or as ``keepalive`` says."""

    def __init__(self) -> None:
        self.sent_s: list[float] = []
        self.revoked: list[int] = []
        self.delay_s = 0.0
        self.keepalive: Callable[[], Awaitable[None]] | None = None

    async def grant(self, ttl_s: int, _timeout_ms: float | None) -> Kept:
        sent_s = asyncio.get_running_loop().time()
        await asyncio.sleep(self.delay_s)
        return Kept(7, ttl_s, sent_s)

    async def keep_alive(self, lease_id: int, timeout_ms: float) -> Kept:
        sent_s = asyncio.get_running_loop().time()
        self.sent_s.append(sent_s)
        async with asyncio.timeout(timeout_ms / 1000):
            if self.keepalive is not None:
                await self.keepalive()
            await asyncio.sleep(self.delay_s)
        return Kept(lease_id, TTL_S, sent_s)

    async def revoke(self, lease_id: int) -> None:
        self.revoked.append(lease_id)


async def unreachable() -> None:
    raise error(Code.NETWORK_ERROR, "nobody answers")


async def gone() -> None:
    raise error(Code.LEASE_NOT_FOUND, "no such lease")


@virtual_time
async def test_a_lease_lives_as_long_as_its_block() -> None:
    calls = FakeCalls()
    async with Lease(calls, TTL_S) as lease:
        await asyncio.sleep(10 * TTL_S)
        assert lease.is_alive
        lease.check()
    assert calls.revoked == [7]
    assert not lease.is_alive


@virtual_time
async def test_it_is_kept_alive_three_times_in_its_time() -> None:
    calls = FakeCalls()
    async with Lease(calls, TTL_S) as lease:
        await asyncio.sleep(TTL_S)
        assert lease.is_alive
    assert len(calls.sent_s) in (2, 3)


async def hold_until_lost(lease: Lease) -> None:
    async with lease:
        await lease.lost()


async def hold(lease: Lease) -> None:
    """One that was granted."""
    await lease.lost()
    await lease.__aexit__(None, None, None)


@virtual_time
async def test_its_time_counts_from_the_sending_of_what_was_answered() -> None:
    calls = FakeCalls()
    calls.delay_s, calls.keepalive = 3.0, unreachable
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    lease = Lease(calls, TTL_S)
    with pytest.raises(LeaseLost, match="no keepalive was answered for 12 s"):
        await hold_until_lost(lease)
    assert loop.time() == begun_s + TTL_S
    assert not calls.revoked


@virtual_time
async def test_a_keepalive_that_is_answered_too_late_brings_nothing_back() -> None:
    calls = FakeCalls()
    lease = Lease(calls, TTL_S)
    await lease.__aenter__()
    calls.keepalive = lambda: asyncio.sleep(TTL_S - 1)
    with pytest.raises(LeaseLost):
        await lease.while_alive(asyncio.sleep(2 * TTL_S))
    await asyncio.sleep(TTL_S)
    assert not lease.is_alive
    with pytest.raises(LeaseLost):
        lease.check()
    with pytest.raises(LeaseLost):
        await lease.__aexit__(None, None, None)


@virtual_time
async def test_a_program_that_stood_still_does_not_take_its_lease_for_alive() -> None:
    """No timer has fired, no task has run: the clock alone tells."""
    calls = FakeCalls()
    loop = asyncio.get_running_loop()
    async with Lease(calls, TTL_S) as lease:
        measured = loop.time
        loop.time = lambda: measured() + TTL_S  # type: ignore[method-assign]
        assert not lease.is_alive
        loop.time = measured  # type: ignore[method-assign]


def test_a_machine_that_was_suspended_does_not_take_its_lease_for_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop's clock stood still meanwhile."""
    slept_s = 0.0
    monkeypatch.setattr(leases, "suspended_s", lambda: 100.0 + slept_s)

    @virtual_time
    async def hold() -> None:
        nonlocal slept_s
        async with Lease(FakeCalls(), TTL_S) as lease:
            slept_s = TTL_S - 1
            assert lease.left_s == 1
            slept_s = TTL_S
            assert not lease.is_alive
            await asyncio.sleep(TTL_S)  # a keepalive was answered: the store has kept it
            assert lease.is_alive

    hold()


@virtual_time
async def test_a_lease_is_kept_over_a_time_without_answers() -> None:
    calls = FakeCalls()
    async with Lease(calls, TTL_S) as lease:
        calls.keepalive = unreachable
        await asyncio.sleep(TTL_S - 1)
        calls.keepalive = None
        await asyncio.sleep(TTL_S)
        assert lease.is_alive


@virtual_time
async def test_a_lease_that_the_store_has_ended_is_lost_at_once() -> None:
    calls = FakeCalls()
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    calls.keepalive = gone
    with pytest.raises(LeaseLost, match="the store has ended it"):
        await hold_until_lost(Lease(calls, TTL_S))
    assert loop.time() == begun_s + TTL_S / 3
    assert not calls.revoked


@virtual_time
async def test_an_error_of_the_block_goes_before_the_loss() -> None:
    calls = FakeCalls()
    calls.keepalive = gone
    lease = await Lease(calls, TTL_S).__aenter__()
    await lease.lost()
    await lease.__aexit__(KeyError, KeyError(), None)


@virtual_time
async def test_work_that_ends_in_time_gives_its_result() -> None:
    async with Lease(FakeCalls(), TTL_S) as lease:
        assert await lease.while_alive(asyncio.sleep(1, "done")) == "done"


async def test_a_lease_is_granted_once(store: Store) -> None:
    lease = store.lease(10)
    async with lease:
        pass
    with pytest.raises(InvalidRequest, match="granted once"):
        await lease.__aenter__()


# On a store -------------------------------------------------------------------------------------------------------


async def test_keys_go_with_their_lease(store: Store) -> None:
    async with store.lease(60) as lease:
        await store.put("a", "1", lease=lease)
        await store.txn([], [Op.put("b", "2", lease=lease.id)])
        found = await store.get("a")
        assert found is not None
        assert found.lease == lease.id
        assert (await store.lease_times(lease, keys=True)).keys == (b"a", b"b")
    assert await store.count() == 0
    assert await store.leases() == []


async def test_a_lease_outlives_its_time_while_it_is_kept_alive(store: Store) -> None:
    async with store.lease(2) as lease:
        await asyncio.sleep(2.5)
        assert lease.is_alive
        assert lease.id in await store.leases()


async def test_a_lease_is_kept_alive_while_nodes_come_and_go(store: Store, nodes: StoreNodes) -> None:
    async with store.lease(2) as lease:
        for _ in range(4):
            await nodes.kill_each_in_turn()
            await asyncio.sleep(0.6)
        assert lease.is_alive
        assert lease.id in await store.leases()


async def test_a_lease_that_nobody_answers_for_is_lost_in_its_time(store: Store, nodes: StoreNodes) -> None:
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    lease = await store.lease(2).__aenter__()
    await nodes.stop()
    with pytest.raises(LeaseLost):
        await hold(lease)
    assert 1.9 < loop.time() - begun_s < 3


async def test_a_lease_by_hand(store: Store) -> None:
    granted = await store.grant_lease(10)
    assert (granted.granted_s, granted.remaining_s) == (10, 10)
    assert await store.keep_lease_alive(granted.id) == 10
    assert (await store.lease_times(granted)).granted_s == 10
    await store.revoke_lease(granted)
    for call in (store.keep_lease_alive, store.revoke_lease, store.lease_times):
        with pytest.raises(LeaseNotFound):
            await call(granted.id)


@pytest.mark.parametrize("ttl_s", [0, -1, 1.5, 10**10, True])
async def test_a_time_that_no_lease_can_have_is_refused(store: Store, ttl_s: int) -> None:
    with pytest.raises(InvalidRequest, match="whole seconds"):
        store.lease(ttl_s)


async def test_a_lease_that_was_not_granted_has_no_keys(store: Store) -> None:
    with pytest.raises(LeaseLost, match="not granted"):
        await store.put("a", "1", lease=store.lease(10))


async def test_closing_the_client_lets_a_lease_run_out(cluster: client.Cluster, backend: TroubledBackend) -> None:
    lease = cluster.store().lease(60)
    await lease.__aenter__()
    await cluster.close()
    await lease.end()
    assert len(backend.store.leases) == 1


async def test_a_grant_that_nobody_answers_is_told(store: Store, nodes: StoreNodes) -> None:
    await nodes.stop()
    with pytest.raises(Unavailable):
        async with store.lease(10, timeout_ms=200):
            pass

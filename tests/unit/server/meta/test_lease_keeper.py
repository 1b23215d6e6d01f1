"""Leases while a node leads `meta`: ended in time, never before, and by a command of its own term alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from dledger.common.errors import Code, DLedgerError, error
from dledger.server.meta.lease_keeper import LeaseKeeper
from tests.support.virtual_time import virtual_time
from tests.unit.server.meta.leading import ELECTION_S, Leading, LeadingReplica

SOON_S = 0.3
"""An expiry is looked for no later than this."""


@asynccontextmanager
async def keeping(leading: Leading) -> AsyncIterator[LeaseKeeper]:
    keeper = LeaseKeeper(cast("Any", leading), lambda: cast("Any", LeadingReplica(leading)))
    task = asyncio.ensure_future(keeper.run())
    await asyncio.sleep(0)
    try:
        yield keeper
    finally:
        task.cancel()
        await asyncio.wait([task])


@virtual_time
async def test_a_lease_ends_soon_after_its_time_and_never_before() -> None:
    leading = Leading()
    async with keeping(leading) as keeper:
        leading.grant(1, 5)
        keeper.on_applied(leads=True)
        await asyncio.sleep(4.9)
        assert leading.store.leases.get(1)
        await asyncio.sleep(0.1 + SOON_S)
        assert not leading.store.leases.get(1)


@virtual_time
async def test_a_lease_from_before_the_election_has_its_full_time_and_an_election_timeout() -> None:
    leading = Leading()
    leading.grant(1, 5)
    async with keeping(leading):
        await asyncio.sleep(5 + ELECTION_S - 0.1)
        assert leading.store.leases.get(1)
        await asyncio.sleep(0.1 + SOON_S)
        assert not leading.store.leases.get(1)


@virtual_time
async def test_another_term_has_a_clock_of_its_own() -> None:
    leading = Leading()
    leading.grant(1, 5)
    async with keeping(leading) as keeper:
        await asyncio.sleep(4)
        leading.leads = False
        keeper.on_applied(leads=True)
        await asyncio.sleep(1.5)
        leading.leads, leading.term = True, 2
        keeper.on_applied(leads=True)
        await asyncio.sleep(4)
        assert leading.store.leases.get(1), "its time began anew"


@virtual_time
async def test_the_expiry_counts_in_its_own_term_alone() -> None:
    leading = Leading()
    leading.grant(1, 5)
    async with keeping(leading):
        await asyncio.sleep(5 + ELECTION_S + SOON_S)
    assert [term for _, term in leading.submitted] == [1]


@virtual_time
async def test_a_keepalive_confirms_the_leadership_and_gives_the_full_time() -> None:
    leading = Leading()
    async with keeping(leading) as keeper:
        leading.grant(1, 5)
        keeper.on_applied(leads=True)
        await asyncio.sleep(4)
        assert await keeper.keep_alive(1) == 5
        assert leading.confirmations == 1
        await asyncio.sleep(4.9)
        assert leading.store.leases.get(1)
        assert (await keeper.lease_times(1)).remaining_s == 0


@virtual_time
async def test_a_keepalive_of_no_lease_says_so() -> None:
    leading = Leading()
    async with keeping(leading) as keeper:
        assert await keeper.keep_alive(1) == 0
        assert (await keeper.lease_times(1)).granted_s == 0


@virtual_time
async def test_a_keepalive_at_a_node_that_does_not_lead_is_refused() -> None:
    leading = Leading()
    leading.leads = False
    async with keeping(leading) as keeper:
        with pytest.raises(DLedgerError) as refused:
            await keeper.keep_alive(1)
    assert refused.value.code is Code.NOT_LEADER


@virtual_time
async def test_a_keepalive_that_comes_too_late_waits_for_what_becomes_of_the_lease() -> None:
    leading = Leading()
    async with keeping(leading) as keeper:
        leading.grant(1, 5)
        keeper.on_applied(leads=True)
        leading.is_held = True
        await asyncio.sleep(5 + SOON_S)
        asking = asyncio.ensure_future(keeper.keep_alive(1))
        await asyncio.sleep(1)
        assert not asking.done()
        leading.go_on.set()
        assert await asking == 0


@virtual_time
async def test_an_expiry_that_was_refused_is_made_again() -> None:
    leading = Leading()
    async with keeping(leading) as keeper:
        leading.grant(1, 5)
        keeper.on_applied(leads=True)
        leading.refusal = error(Code.LEADER_PENDING_FULL, "a moment")
        await asyncio.sleep(5 + 3 * SOON_S)
        assert not leading.store.leases.get(1)
        assert len(leading.submitted) == 2


@virtual_time
async def test_an_expiry_in_doubt_is_not_made_again_in_its_term() -> None:
    leading = Leading()
    async with keeping(leading) as keeper:
        leading.grant(1, 5)
        keeper.on_applied(leads=True)
        leading.refusal = error(Code.WAIT_QUORUM_ACK_TIMEOUT, "who knows")
        await asyncio.sleep(20)
        assert len(leading.submitted) == 1, "it lies in this leader's log"


@virtual_time
async def test_a_keepalive_in_that_doubt_is_refused_once_the_term_is_over() -> None:
    leading = Leading()
    async with keeping(leading) as keeper:
        leading.grant(1, 5)
        keeper.on_applied(leads=True)
        leading.refusal = error(Code.WAIT_QUORUM_ACK_TIMEOUT, "who knows")
        await asyncio.sleep(6)
        asking = asyncio.ensure_future(keeper.keep_alive(1))
        await asyncio.sleep(1)
        leading.leads = False
        keeper.on_applied(leads=False)
        with pytest.raises(DLedgerError):
            await asyncio.wait_for(asking, 5)

"""A client that holds leases: grants, keeps alive through any node, lets go, and grants again under the same id."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from random import Random
from typing import TypeVar

from google.protobuf.message import Message

from dledger.common.errors import DLedgerError
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.store.commands import Request, command
from dledger.store.refusals import StoreCode, StoreRefused
from tests.simulation.clients import IsOver
from tests.simulation.groups import SimGroup
from tests.simulation.store.calls import Caller, Unknown
from tests.simulation.store.seat_store import THROUGH, SeatStore
from tests.simulation.store.store_truth import StoreTruth, Told

T = TypeVar("T")

LEASE_PREFIX = b"e"
TTLS_S = 2, 2, 3, 5
FASTEST, SLOWEST = 1.2, 0.8
"""Of the clients' own clocks."""
PATIENCE_S = 1.0, 4.0, 12.0
AT_ONCE_SHARE = 0.4
"""Of the grants, and of the ends: a keepalive follows at once, on another node as a rule."""


class LeaseClient:
    """Of one id, which nobody else uses."""

    def __init__(self, lease_id: int, group: SimGroup, random: Random) -> None:
        assert isinstance(group.truth, StoreTruth)
        self._id = lease_id
        self._group = group
        self._world = group.cluster.world
        self._truth = group.truth
        self._trace = group.cluster.trace
        self._random = random
        self._rate = random.uniform(SLOWEST, FASTEST)
        self._caller = Caller(group, random)
        self._number = 0
        self._ttl_s = 2

    async def run(self, is_over: IsOver) -> None:
        while not is_over():
            if await self._grant():
                if self._random.random() < AT_ONCE_SHARE:
                    await self._keep_alive()
                await self._attach()
                await self._hold(is_over)
                await self._let_go()
            await self._pause(0.3)

    async def _pause(self, mean_s: float) -> None:
        await asyncio.sleep(self._random.expovariate(1 / mean_s))

    # Commands ----------------------------------------------------------------------------------------------------

    async def _grant(self) -> bool:
        """Whether it may be there now."""
        self._ttl_s = self._random.choice(TTLS_S)
        request = rpc.LeaseGrantRequest(ID=self._id, TTL=self._ttl_s)
        return await self._write(request, lambda store: store.leases.LeaseGrant(request, THROUGH))

    async def _attach(self) -> None:
        for _ in range(self._random.choice((1, 1, 2, 3))):
            self._number += 1
            key = b"%s%d-%d" % (LEASE_PREFIX, self._id, self._random.randrange(3))
            request = rpc.PutRequest(key=key, value=b"%d-%d" % (self._id, self._number), lease=self._id)
            await self._write(request, partial(_put, request))

    async def _revoke(self) -> None:
        request = rpc.LeaseRevokeRequest(ID=self._id)
        await self._write(request, lambda store: store.leases.LeaseRevoke(request, THROUGH))

    async def _write(self, request: Request, work: Callable[[SeatStore], Awaitable[Message]]) -> bool:
        """Whether it is carried out, or may be."""
        seat = self._caller.seat()
        if seat is None:
            return False
        given, asked_s = command(request), self._world.time()
        try:
            told: Told = await self._caller.call(seat, work, self._random.choice(PATIENCE_S))
        except Unknown:
            return True
        except StoreRefused as refusal:
            self._trace.hit(f"branch store {refusal.code.name}")
            told = refusal
        except DLedgerError:
            return False
        self._truth.check_answer(given, told, asked_s)
        self._group.journal.appends += 1
        return not isinstance(told, StoreRefused) or told.code is StoreCode.LEASE_EXISTS

    # Keeping it --------------------------------------------------------------------------------------------------

    async def _hold(self, is_over: IsOver) -> None:
        for _ in range(self._random.choice((0, 1, 3, 8))):
            share = self._random.choice((0.3, 0.3, 0.6, 0.95))
            await asyncio.sleep(self._ttl_s * share * self._rate)
            if is_over():
                return
            keepalives = [self._keep_alive() for _ in range(self._random.choice((1, 1, 2)))]
            if not any(await asyncio.gather(*keepalives)):
                return
            if self._random.random() < 0.2:
                await self._look()

    async def _keep_alive(self) -> bool:
        """Whether the lease may be there."""
        request, sent_s = rpc.LeaseKeepAliveRequest(ID=self._id), self._world.time()

        async def ask(store: SeatStore) -> rpc.LeaseKeepAliveResponse:
            async for answer in store.leases.LeaseKeepAlive(_one(request), THROUGH):
                told: rpc.LeaseKeepAliveResponse = answer
                return told
            raise AssertionError("a keepalive is answered")

        answer = await self._ask(ask)
        if answer is None:
            self._trace.hit("branch keepalive unanswered")
            return True
        now_s = self._world.time()
        if answer.TTL:
            self._trace.hit("branch lease kept alive")
            self._truth.leases.kept_alive(self._id, sent_s, now_s)
        else:
            self._trace.hit("branch keepalive of no lease")
            self._truth.leases.said_to_be_gone(self._id, sent_s, now_s)
        return answer.TTL > 0

    async def _look(self) -> None:
        request, sent_s = rpc.LeaseTimeToLiveRequest(ID=self._id), self._world.time()

        async def ask(store: SeatStore) -> rpc.LeaseTimeToLiveResponse:
            told: rpc.LeaseTimeToLiveResponse = await store.leases.LeaseTimeToLive(request, THROUGH)
            return told

        answer = await self._ask(ask)
        if answer is None:
            return
        now_s = self._world.time()
        if answer.TTL < 0:
            self._truth.leases.said_to_be_gone(self._id, sent_s, now_s)
        else:
            self._truth.leases.said_to_live(self._id, sent_s, now_s)
        self._group.journal.reads += 1

    async def _ask(self, ask: Callable[[SeatStore], Awaitable[T]]) -> T | None:
        seat = self._caller.seat()
        if seat is None:
            return None
        try:
            return await self._caller.call(seat, ask, self._random.choice(PATIENCE_S))
        except (Unknown, DLedgerError):
            return None

    async def _let_go(self) -> None:
        """Revoked, or left to itself: until it has expired, or until about then."""
        if self._random.random() < 0.3:
            await self._revoke()
            if self._random.random() < AT_ONCE_SHARE:
                await self._keep_alive()
            return
        await asyncio.sleep(self._ttl_s * self._random.choice((0.5, 1.0, 1.2, 1.5)))
        while self._random.random() < 0.5 and await self._keep_alive():
            await self._pause(0.3)


async def _put(request: rpc.PutRequest, store: SeatStore) -> Message:
    answer: Message = await store.kv.Put(request, THROUGH)
    return answer


async def _one(request: rpc.LeaseKeepAliveRequest) -> AsyncIterator[rpc.LeaseKeepAliveRequest]:
    yield request

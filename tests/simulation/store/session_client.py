"""A client that counts its commands in a session of its own, and gives each again until it is answered, on any node."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from dledger.common.errors import Code, DLedgerError
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.store.commands import Request, command
from dledger.store.refusals import StoreRefused
from tests.simulation.clients import IsOver
from tests.simulation.groups import SimGroup
from tests.simulation.store.calls import Caller, Unknown
from tests.simulation.store.seat_store import SeatStore
from tests.simulation.store.store_truth import StoreTruth, Told

SESSION_PREFIX = b"s"
AT_ONCE = 4
ATTEMPTS = 12
PATIENCE_S = 0.05, 0.3, 2.0, 12.0
AGAIN_SHARE = 0.3
"""Of the answered commands: given once more, which changes nothing."""
LATE_SHARE = 0.1
"""Of the commands whose answer was acknowledged: given once more, and refused."""


class SessionClient:
    def __init__(self, name: str, group: SimGroup, random: Random) -> None:
        assert isinstance(group.truth, StoreTruth)
        self._name = name
        self._group = group
        self._truth = group.truth
        self._trace = group.cluster.trace
        self._random = random
        self._caller = Caller(group, random)
        self._number = 0

    async def run(self, is_over: IsOver) -> None:
        while not is_over():
            session = await self._open()
            if session:
                await _Session(self, session).use(is_over)
            await asyncio.sleep(self._random.expovariate(5))

    async def _open(self) -> int:
        seat = self._caller.seat()
        if seat is None:
            return 0
        try:
            return await self._caller.call(seat, lambda store: store.backend.open_session(), 5.0)
        except (Unknown, DLedgerError):
            return 0

    def request(self) -> Request:
        """No two are the same."""
        self._number += 1
        key = b"%s%d" % (SESSION_PREFIX, self._random.randrange(4))
        put = rpc.PutRequest(key=key, value=f"{self._name}-{self._number}".encode(), prev_kv=True)
        if self._random.random() < 0.6:
            return put
        version = self._random.randrange(1, 30)
        compare = rpc.Compare(key=key, target=rpc.Compare.VERSION, result=rpc.Compare.GREATER, version=version)
        delete = rpc.DeleteRangeRequest(key=key, prev_kv=True)
        read = rpc.RangeRequest(key=key, revision=max(1, self._truth.revision - self._random.randrange(60)))
        success = [rpc.RequestOp(request_delete_range=delete)]
        failure = [rpc.RequestOp(request_put=put), rpc.RequestOp(request_range=read)]
        return rpc.TxnRequest(compare=[compare], success=success, failure=failure)


class _Session:
    """Its requests, until one of them is given up or the session has ended."""

    def __init__(self, client: SessionClient, session: int) -> None:
        self._client = client
        self._id = session
        self._truth = client._truth
        self._random = client._random
        self._requests = 0
        self._acknowledged = 0
        self._answered: set[int] = set()
        self._given: dict[int, bytes] = {}
        self._is_lost = False

    async def use(self, is_over: IsOver) -> None:
        async with asyncio.TaskGroup() as under_way:
            while not is_over() and not self._is_lost:
                if self._requests - len(self._answered) - self._acknowledged < AT_ONCE:
                    self._requests += 1
                    under_way.create_task(self._carry_out(self._requests), name=f"session {self._id}")
                await asyncio.sleep(self._random.expovariate(4))

    async def _carry_out(self, request: int) -> None:
        given = self._given[request] = command(self._client.request())
        self._truth.given_once.add(given)
        for attempt in range(ATTEMPTS):
            told = await self._give(request, is_first=not attempt)
            if self._is_lost:
                return
            if told is not None:
                break
        else:
            self._is_lost = True
            return
        self._truth.check_first_answer(self._id, request, told)
        self._client._group.journal.appends += 1
        while self._random.random() < AGAIN_SHARE:
            again = await self._give(request)
            if again is not None:
                self._client._trace.hit("branch first answer again")
                self._truth.check_first_answer(self._id, request, again)
        await self._acknowledge(request)

    async def _acknowledge(self, request: int) -> None:
        self._answered.add(request)
        while self._acknowledged + 1 in self._answered:
            self._acknowledged += 1
            self._answered.discard(self._acknowledged)
        if self._random.random() < LATE_SHARE and request <= self._acknowledged:
            await self._give(request, is_late=True)

    async def _give(self, request: int, *, is_first: bool = False, is_late: bool = False) -> Told | None:
        """Its answer; None: there was none."""
        caller, given, acknowledged = self._client._caller, self._given[request], self._acknowledged
        seat = caller.seat()
        if seat is None:
            await asyncio.sleep(0.1)
            return None

        async def submit(store: SeatStore) -> Any:
            return await store.backend.submit_in_session(self._id, request, acknowledged, given)

        try:
            told: Told = await caller.call(seat, submit, self._random.choice(PATIENCE_S))
        except Unknown as unknown:
            if unknown.code is Code.SESSION_EXPIRED and not is_late:
                self._truth.check_expired(self._id)
                self._is_lost = True
                if unknown.changed_nothing and is_first:
                    self._truth.refuse(given)
        except StoreRefused as refusal:
            return refusal
        except DLedgerError:
            await asyncio.sleep(0.05)
        else:
            return told
        return None

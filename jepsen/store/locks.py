"""Clients of locks, by etcd's recipe: a key for each that wants it, and the oldest one has it. Its age is the token.

Each key goes with a lease. A holder writes to the lock's resource in transactions that compare its own key's creation
with its token: the resource takes a write only while the key is there. Now and then a holder stops for longer than its
lease lives, as a process does that is paused, and then goes on writing as if nothing had been.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

from dledger.etcdpb import rpc_pb2 as rpc
from dledger.kernels.store.locks import FencedWrite, Holding
from dledger.rpc.client.rpc_failure import RpcFailure
from jepsen.store.client import StoreClient
from jepsen.store.journal import History, Journal
from jepsen.store.kv import header_of
from jepsen.store.leases import LeaseCalls, answer_of

PREFIX = "lock/"
RESOURCE = "resource/"
REQUEST, TURN, WRITE = "lock-request", "lock-turn", "fenced-write"
HOLDING = "holding"
LOCKS = 2
TTL_S = 2
STALLS = 0.15
STALL_S = (0.5 * TTL_S, 3.0 * TTL_S)
MOST_WRITES = 5
WAIT_S = 1.0
"""For the one before to be gone; then the lock is looked at again."""


class LockWorker:
    """One process: it takes one of the locks, writes under it, and lets it go, again and again."""

    def __init__(self, process: int, client: StoreClient, journal: Journal, chance: random.Random) -> None:
        self._process = process
        self._client = client
        self._journal = journal
        self._chance = chance
        self._calls = LeaseCalls(process, client, journal)

    async def run(self, ended: asyncio.Event) -> None:
        while not ended.is_set():
            lock = f"{self._chance.randrange(LOCKS)}"
            lease = await self._calls.grant(TTL_S)
            if not lease:
                continue
            keeping = asyncio.create_task(self._keep(lease), name="keep-alive")
            try:
                key = f"{PREFIX}{lock}/{lease:x}"
                token = await self._request(key, lease)
                if token and await self._wait_for_turn(lock, key, token, ended):
                    await self._hold(lock, key, token, keeping)
            finally:
                keeping.cancel()
                await asyncio.wait([keeping])
            await self._calls.revoke(lease)

    async def _keep(self, lease: int) -> None:
        while True:
            if not await self._calls.keep_alive(lease):
                return
            await asyncio.sleep(TTL_S / 3)

    async def _request(self, key: str, lease: int) -> int:
        """The token; 0 if there was no answer."""
        operation = self._journal.invoke(self._process, REQUEST, key=key, lease=lease)
        name = key.encode()
        request = rpc.TxnRequest(
            compare=[_created(name, 0)],
            success=[rpc.RequestOp(request_put=rpc.PutRequest(key=name, value=b"x", lease=lease))],
        )
        asked = await self._client.call("KV.Txn", request)
        answer = answer_of(asked)
        self._journal.complete(operation, asked, **({} if answer is None else header_of(answer)))
        return int(answer.header.revision) if answer is not None and answer.succeeded else 0

    async def _wait_for_turn(self, lock: str, key: str, token: int, ended: asyncio.Event) -> bool:
        """Until the key is the oldest one. False: it is gone, or the run has ended."""
        first = f"{PREFIX}{lock}/"
        request = rpc.RangeRequest(
            key=first.encode(),
            range_end=(first[:-1] + "0").encode(),
            sort_order=rpc.RangeRequest.ASCEND,
            sort_target=rpc.RangeRequest.CREATE,
        )
        while not ended.is_set():
            operation = self._journal.invoke(self._process, TURN, lock=lock)
            asked = await self._client.call("KV.Range", request)
            answer = answer_of(asked)
            self._journal.complete(operation, asked, **({} if answer is None else header_of(answer)))
            if answer is None:
                continue
            keys = [pair.key.decode() for pair in answer.kvs]
            if key not in keys:
                return False
            if keys[0] == key:
                revision = answer.header.revision
                self._journal.note(HOLDING, lock=lock, token=token, revision=revision, process=self._process)
                return True
            await self._until_deleted(keys[keys.index(key) - 1], answer.header.revision + 1)
        return False

    async def _until_deleted(self, key: str, revision: int) -> None:
        """Or until so much time has passed, or the watch breaks: then it is to be looked for."""
        watch = self._client.stream("Watch.Watch", self._client.node)
        request = rpc.WatchCreateRequest(
            key=key.encode(), start_revision=revision, filters=[rpc.WatchCreateRequest.NOPUT]
        )
        try:
            async with asyncio.timeout(WAIT_S):
                await watch.write(rpc.WatchRequest(create_request=request))
                while (response := await watch.read()) is not None and not response.events:
                    pass
        except (TimeoutError, RpcFailure):
            return
        finally:
            watch.cancel()

    async def _hold(self, lock: str, key: str, token: int, keeping: asyncio.Task[None]) -> None:
        for number in range(self._chance.randrange(1, MOST_WRITES + 1)):
            if self._chance.random() < STALLS:
                keeping.cancel()
                await asyncio.sleep(self._chance.uniform(*STALL_S))
            await self._write(lock, key, token, f"{token}.{number}")

    async def _write(self, lock: str, key: str, token: int, value: str) -> None:
        operation = self._journal.invoke(self._process, WRITE, lock=lock, token=token, value=value)
        put = rpc.PutRequest(key=f"{RESOURCE}{lock}".encode(), value=value.encode())
        request = rpc.TxnRequest(compare=[_created(key.encode(), token)], success=[rpc.RequestOp(request_put=put)])
        asked = await self._client.call("KV.Txn", request)
        answer = answer_of(asked)
        found = {} if answer is None else {**header_of(answer), "accepted": answer.succeeded}
        self._journal.complete(operation, asked, **found)


def _created(key: bytes, revision: int) -> rpc.Compare:
    """0: it does not exist."""
    return rpc.Compare(key=key, target=rpc.Compare.CREATE, result=rpc.Compare.EQUAL, create_revision=revision)


def holdings_of(history: History) -> Iterator[Holding]:
    for number, note in enumerate(history.about(HOLDING)):
        told = note.told
        yield Holding(number, told["lock"], told["token"], told["revision"], told["process"])


def fenced_writes_of(history: History) -> Iterator[FencedWrite]:
    for call in history.of(WRITE):
        told = call.told
        revision = told.get("revision", 0)
        yield FencedWrite(call.id, told["lock"], told["token"], call.outcome, told.get("accepted", False), revision)

"""A client that changes several keys in each transaction: whoever sees one of the changes is to see them all."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from dledger.etcdpb import rpc_pb2 as rpc
from jepsen.store.client import StoreClient
from jepsen.store.journal import Journal
from jepsen.store.kv import header_of
from jepsen.store.outcomes import Answered

PREFIX = "bundle/"
OP = "bundle"
KEYS = 6
MOST_KEYS = 4
DELETES = 0.2


class BundleWorker:
    """One process: one transaction after another."""

    def __init__(
        self, process: int, client: StoreClient, journal: Journal, chance: random.Random, *, rate_per_s: float = 0.0
    ) -> None:
        self._process = process
        self._client = client
        self._journal = journal
        self._chance = chance
        self._interval_s = 1 / rate_per_s if rate_per_s else 0.0
        self._writes = 0

    async def run(self, ended: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        next_at = loop.time() + self._interval_s * self._chance.random()
        while not ended.is_set():
            if self._interval_s:
                await asyncio.sleep(next_at - loop.time())
                next_at = max(next_at + self._interval_s, loop.time() - 1)
            await self._write(self._chance.sample(range(KEYS), self._chance.randrange(2, MOST_KEYS + 1)))

    async def _write(self, numbers: list[int]) -> None:
        self._writes += 1
        changes: list[list[Any]] = []
        for number in sorted(numbers):
            # The first one is a put: a transaction that deletes nothing that is there would change nothing.
            is_delete = bool(changes) and self._chance.random() < DELETES
            changes.append([f"{PREFIX}{number}", None if is_delete else f"{self._process}.{self._writes}.{number}"])
        operation = self._journal.invoke(self._process, OP, changes=changes)
        asked = await self._client.call("KV.Txn", rpc.TxnRequest(success=[_request(*change) for change in changes]))
        if isinstance(asked.outcome, Answered):
            answer = asked.outcome.message
            done = [change for change, response in zip(changes, answer.responses, strict=True) if _did(response)]
            self._journal.complete(operation, asked, **header_of(answer), done=done)
        else:
            self._journal.complete(operation, asked)


def _request(key: str, value: str | None) -> rpc.RequestOp:
    if value is None:
        return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key.encode()))
    return rpc.RequestOp(request_put=rpc.PutRequest(key=key.encode(), value=value.encode()))


def _did(response: rpc.ResponseOp) -> bool:
    """Whether it changed something: a delete of a key that is not there does not."""
    return not response.HasField("response_delete_range") or bool(response.response_delete_range.deleted)

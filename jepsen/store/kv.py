"""Clients of keys: gets, puts, deletes and compare-and-sets, and what their history means to the check of registers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dledger.etcdpb import kv_pb2
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.kernels.store.register import FOREVER, Answer, Expectation, Kind, Operation, Pair, Target
from jepsen.store.client import StoreClient
from jepsen.store.journal import Call, Journal
from jepsen.store.outcomes import Answered, Outcome

PREFIX = "kv/"
PREFIX_END = "kv0"
KINDS = (Kind.GET, Kind.PUT, Kind.DELETE, Kind.CAS)
WEIGHTS = (35, 30, 10, 25)
GETS_ALONE = (1, 0, 0, 0)
SERIALIZABLE = 0.25
"""Of the gets."""
OPS = tuple(kind.value for kind in Kind)

Before = list[Any] | None
"""A pair as the history has it: value, revision of creation, revision of the last change, version."""


class KvWorker:
    """One process: one operation after another on keys that all of them share."""

    def __init__(
        self,
        process: int,
        client: StoreClient,
        journal: Journal,
        chance: random.Random,
        *,
        keys: Sequence[str],
        rate_per_s: float = 0.0,
        weights: Sequence[int] = WEIGHTS,
    ) -> None:
        """``rate_per_s``: 0: as fast as operations are answered. ``weights``: of ``KINDS``."""
        self._process = process
        self._client = client
        self._journal = journal
        self._chance = chance
        self._keys = keys
        self._interval_s = 1 / rate_per_s if rate_per_s else 0.0
        self._weights = weights
        self._seen: dict[str, Before] = dict.fromkeys(keys)
        self._writes = 0

    async def run(self, ended: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        next_at = loop.time() + self._interval_s * self._chance.random()
        while not ended.is_set():
            if self._interval_s:
                await asyncio.sleep(next_at - loop.time())
                next_at = max(next_at + self._interval_s, loop.time() - 1)
            [kind] = self._chance.choices(KINDS, self._weights)
            await self._carry_out(kind, self._chance.choice(self._keys))

    async def _carry_out(self, kind: Kind, key: str) -> None:
        match kind:
            case Kind.GET:
                await self._get(key, is_serializable=self._chance.random() < SERIALIZABLE)
            case Kind.PUT:
                await self._put(key)
            case Kind.DELETE:
                await self._delete(key)
            case Kind.CAS:
                await self._compare_and_set(key)

    async def _get(self, key: str, *, is_serializable: bool) -> None:
        operation = self._journal.invoke(self._process, Kind.GET.value, key=key, serializable=is_serializable)
        request = rpc.RangeRequest(key=key.encode(), serializable=is_serializable)
        asked = await self._client.call("KV.Range", request)
        found = self._found(key, asked.outcome, lambda answer: (False, before_of(answer.kvs)))
        self._journal.complete(operation, asked, **found)

    async def _put(self, key: str) -> None:
        value = self._new_value()
        operation = self._journal.invoke(self._process, Kind.PUT.value, key=key, value=value)
        request = rpc.PutRequest(key=key.encode(), value=value.encode(), prev_kv=True)
        asked = await self._client.call("KV.Put", request)
        found = self._found(key, asked.outcome, lambda answer: (True, _before_put(answer)))
        self._journal.complete(operation, asked, **found)

    async def _delete(self, key: str) -> None:
        operation = self._journal.invoke(self._process, Kind.DELETE.value, key=key)
        request = rpc.DeleteRangeRequest(key=key.encode(), prev_kv=True)
        asked = await self._client.call("KV.DeleteRange", request)
        found = self._found(key, asked.outcome, lambda answer: (bool(answer.deleted), before_of(answer.prev_kvs)))
        self._journal.complete(operation, asked, **found)

    async def _compare_and_set(self, key: str) -> None:
        value, expects = self._new_value(), self._expectation(self._seen[key])
        told = [expects.target.value, expects.operand]
        operation = self._journal.invoke(self._process, Kind.CAS.value, key=key, value=value, expects=told)
        asked = await self._client.call("KV.Txn", cas_request(key, value, expects))
        found = self._found(
            key, asked.outcome, lambda answer: (answer.succeeded, before_of(answer.responses[0].response_range.kvs))
        )
        self._journal.complete(operation, asked, **found)

    def _found(self, key: str, outcome: Outcome, read: Any) -> dict[str, Any]:
        """What is written down of an answer."""
        if not isinstance(outcome, Answered):
            return {}
        message = outcome.message
        changed, before = read(message)
        self._seen[key] = before
        return {**header_of(message), "changed": changed, "before": before}

    def _new_value(self) -> str:
        self._writes += 1
        return f"{self._process}.{self._writes}"

    def _expectation(self, seen: Before) -> Expectation:
        """That the key is as this client has seen it last: often it is by then another one."""
        if seen is None:
            return Expectation(self._chance.choice([Target.VERSION, Target.CREATE]), 0)
        value, create, mod, version = seen
        operands = {Target.VALUE: value, Target.CREATE: create, Target.MOD: mod, Target.VERSION: version}
        return Expectation(*self._chance.choice(list(operands.items())))


def cas_request(key: str, value: str, expects: Expectation) -> rpc.TxnRequest:
    """It shows what the key was either way."""
    name = key.encode()
    compare = rpc.Compare(key=name, result=rpc.Compare.EQUAL)
    match expects.target:
        case Target.VALUE:
            compare.target, compare.value = rpc.Compare.VALUE, str(expects.operand).encode()
        case Target.CREATE:
            compare.target, compare.create_revision = rpc.Compare.CREATE, int(expects.operand)
        case Target.MOD:
            compare.target, compare.mod_revision = rpc.Compare.MOD, int(expects.operand)
        case Target.VERSION:
            compare.target, compare.version = rpc.Compare.VERSION, int(expects.operand)
    get = rpc.RequestOp(request_range=rpc.RangeRequest(key=name))
    put = rpc.RequestOp(request_put=rpc.PutRequest(key=name, value=value.encode()))
    return rpc.TxnRequest(compare=[compare], success=[get, put], failure=[get])


def header_of(answer: Any) -> dict[str, int]:
    return {"revision": answer.header.revision, "term": answer.header.raft_term}


def told_pair(pair: kv_pb2.KeyValue) -> list[Any]:
    return [pair.value.decode(), pair.create_revision, pair.mod_revision, pair.version]


def before_of(pairs: Sequence[kv_pb2.KeyValue]) -> Before:
    """Of a request for one key."""
    return told_pair(pairs[0]) if pairs else None


def _before_put(answer: rpc.PutResponse) -> Before:
    return told_pair(answer.prev_kv) if answer.HasField("prev_kv") else None


# The history as the check has it ----------------------------------------------------------------------------------


def operations_of(calls: Iterable[Call]) -> Iterator[Operation]:
    for call in calls:
        told = call.told
        expects = told.get("expects")
        yield Operation(
            call.id,
            Kind(call.op),
            told["key"],
            call.invoked_ns,
            call.completed_ns if call.is_ok else FOREVER,
            call.outcome,
            _answer_of(call),
            told.get("value", ""),
            None if expects is None else Expectation(Target(expects[0]), expects[1]),
            is_serializable=told.get("serializable", False),
        )


def _answer_of(call: Call) -> Answer | None:
    if not call.is_ok:
        return None
    before = call.told["before"]
    return Answer(call.told["revision"], call.told["changed"], None if before is None else Pair(*before))

"""Clients of lists: transactions of several keys that read lists and append to them, by a compare-and-set of them all.

A list is one key's value, its elements separated by commas. A transaction reads all its keys at one revision. Then it
writes those that it appends to, if none of its keys has changed. So it was carried out where the second step was; if
something has changed, it surely was not.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dledger.etcdpb import rpc_pb2 as rpc
from dledger.kernels.store.appends import Append, Read, Step, Transaction
from jepsen.store.client import Asked, StoreClient
from jepsen.store.journal import Call, Journal
from jepsen.store.kv import header_of
from jepsen.store.outcomes import Answered, Refused

PREFIX = "list/"
PREFIX_END = "list0"
OP = "transaction"
LISTS = 4
"""So many at a time."""
GENERATION_S = 4.0
"""Lists are left for new ones after so long: they would grow without end."""
MOST_STEPS = 4
APPENDS = 0.5
"""Of the steps."""
CHANGED = "a key had changed"

Told = list[Any]
"""A step as the history has it: ["append", key, element], or ["read", key, elements or null]."""


class ListWorker:
    """One process: one transaction after another."""

    def __init__(
        self, process: int, client: StoreClient, journal: Journal, chance: random.Random, *, rate_per_s: float = 0.0
    ) -> None:
        self._process = process
        self._client = client
        self._journal = journal
        self._chance = chance
        self._interval_s = 1 / rate_per_s if rate_per_s else 0.0
        self._appends = 0

    async def run(self, ended: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        next_at = loop.time() + self._interval_s * self._chance.random()
        while not ended.is_set():
            if self._interval_s:
                await asyncio.sleep(next_at - loop.time())
                next_at = max(next_at + self._interval_s, loop.time() - 1)
            await self._carry_out(self._steps())

    def _steps(self) -> list[Told]:
        generation = int(self._journal.now_ns() / 1e9 / GENERATION_S)
        steps: list[Told] = []
        for _ in range(self._chance.randrange(1, MOST_STEPS + 1)):
            key = f"{PREFIX}{generation}.{self._chance.randrange(LISTS)}"
            if self._chance.random() < APPENDS:
                self._appends += 1
                steps.append(["append", key, f"{self._process}.{self._appends}"])
            else:
                steps.append(["read", key, None])
        return steps

    async def _carry_out(self, steps: list[Told]) -> None:
        operation = self._journal.invoke(self._process, OP, steps=steps)
        names = sorted({key for _, key, _ in steps})
        gets = [rpc.RequestOp(request_range=rpc.RangeRequest(key=name.encode())) for name in names]
        asked = await self._client.call("KV.Txn", rpc.TxnRequest(success=gets))
        if not isinstance(asked.outcome, Answered):
            # It only read.
            self._journal.complete(operation, Asked(asked.node, Refused(asked.outcome.why)))
            return
        ranges = [response.response_range for response in asked.outcome.message.responses]
        found = {name: got.kvs[0] if got.kvs else None for name, got in zip(names, ranges, strict=True)}
        lists = {name: elements_of(pair.value) if pair is not None else [] for name, pair in found.items()}
        done = done_on(steps, lists)
        changed = sorted({key for kind, key, _ in steps if kind == "append"})
        if changed:
            compares = [
                rpc.Compare(
                    key=name.encode(),
                    target=rpc.Compare.MOD,
                    result=rpc.Compare.EQUAL,
                    mod_revision=pair.mod_revision if pair is not None else 0,
                )
                for name, pair in found.items()
            ]
            puts = [rpc.PutRequest(key=name.encode(), value=",".join(lists[name]).encode()) for name in changed]
            request = rpc.TxnRequest(compare=compares, success=[rpc.RequestOp(request_put=put) for put in puts])
            asked = await self._client.call("KV.Txn", request)
            if isinstance(asked.outcome, Answered) and not asked.outcome.message.succeeded:
                asked = Asked(asked.node, Refused(CHANGED))
        header = header_of(asked.outcome.message) if isinstance(asked.outcome, Answered) else {}
        self._journal.complete(operation, asked, **header, steps=done)


def done_on(steps: Iterable[Told], lists: dict[str, list[str]]) -> list[Told]:
    """The steps with what they read, carried out on ``lists``."""
    done: list[Told] = []
    for kind, key, element in steps:
        if kind == "append":
            lists[key].append(element)
            done.append([kind, key, element])
        else:
            done.append([kind, key, list(lists[key])])
    return done


def elements_of(value: bytes) -> list[str]:
    return value.decode().split(",") if value else []


async def read_lists(client: StoreClient, node: str, journal: Journal, process: int, keys: Sequence[str]) -> bool:
    """Reads all lists at that node, in one transaction. ``keys``: those that there may be."""
    operation = journal.invoke(process, OP, steps=[["read", key, None] for key in keys])
    request = rpc.RangeRequest(key=PREFIX.encode(), range_end=PREFIX_END.encode())
    asked = await client.call("KV.Range", request, node=node)
    if not isinstance(asked.outcome, Answered):
        journal.complete(operation, asked)
        return False
    answer = asked.outcome.message
    lists = {pair.key.decode(): elements_of(pair.value) for pair in answer.kvs}
    steps = [["read", key, lists.get(key, [])] for key in sorted({*keys, *lists})]
    journal.complete(operation, asked, **header_of(answer), steps=steps)
    return True


def keys_until(now_ns: int) -> list[str]:
    """The lists that there may be by then."""
    return [
        f"{PREFIX}{generation}.{number}"
        for generation in range(int(now_ns / 1e9 / GENERATION_S) + 1)
        for number in range(LISTS)
    ]


def transactions_of(calls: Iterable[Call]) -> Iterator[Transaction]:
    for call in calls:
        steps = tuple(_step(*step) for step in call.told["steps"] if call.is_ok or step[0] == "append")
        yield Transaction(call.id, steps, call.invoked_ns, call.completed_ns, call.outcome)


def _step(kind: str, key: str, told: Any) -> Step:
    return Append(key, told) if kind == "append" else Read(key, tuple(told))

"""Clients of leases: each grants one, hangs keys on it, keeps it alive for a while or not, and sees when it is gone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from dledger.etcdpb import rpc_pb2 as rpc
from dledger.kernels.store.leases import Bounds, Disturbance, Kind, LeaseOperation
from jepsen.nemesis.api import happens
from jepsen.nemesis.schedule import Window
from jepsen.store.client import Asked, StoreClient
from jepsen.store.journal import Call, History, Journal
from jepsen.store.kv import header_of
from jepsen.store.outcomes import Answered

PREFIX = "lease/"
HANG = "hang"
"""A put of a key that goes with a lease."""
OPS = tuple(kind.value for kind in Kind)
TTLS_S = (2, 3, 4)
KEYS = 2
"""On each lease."""
LOOK_EVERY_S = 0.15
KEPT_FOR_S = (1.0, 8.0)
KEPT, REVOKED, LATE = 0.3, 0.1, 0.3
"""So many of the leases are kept alive for a while; revoked; kept alive at the last moment. The others are left to
themselves."""
LATE_BY_S = (-0.05, 0.2)
LATE_ROUNDS = 4
SOON_S = 0.3
"""A lease that was ended all the same is gone by then."""
PATIENCE = 4
"""So many times its TTL a lease is looked after; that it was there longest is in the history then."""
SECOND_NS = 1_000_000_000


class LeaseCalls:
    """The calls about leases, each written down."""

    def __init__(self, process: int, client: StoreClient, journal: Journal) -> None:
        self._process = process
        self._client = client
        self._journal = journal

    async def grant(self, ttl_s: int) -> int:
        """The lease's id; 0 if there was no answer."""
        operation = self._journal.invoke(self._process, Kind.GRANT.value, asked=ttl_s)
        asked = await self._client.call("Lease.LeaseGrant", rpc.LeaseGrantRequest(TTL=ttl_s))
        answer = answer_of(asked)
        found = {} if answer is None else {**header_of(answer), "lease": answer.ID, "ttl": answer.TTL}
        self._journal.complete(operation, asked, **found)
        return int(found.get("lease", 0))

    async def keep_alive(self, lease: int) -> bool:
        """Whether the lease is alive, as far as is known."""
        operation = self._journal.invoke(self._process, Kind.KEEP_ALIVE.value, lease=lease)
        asked = await self._client.ask_stream("Lease.LeaseKeepAlive", rpc.LeaseKeepAliveRequest(ID=lease))
        answer = answer_of(asked)
        found = {} if answer is None else {**header_of(answer), "ttl": answer.TTL}
        self._journal.complete(operation, asked, **found)
        return answer is None or answer.TTL > 0

    async def revoke(self, lease: int) -> None:
        operation = self._journal.invoke(self._process, Kind.REVOKE.value, lease=lease)
        asked = await self._client.call("Lease.LeaseRevoke", rpc.LeaseRevokeRequest(ID=lease))
        answer = answer_of(asked)
        self._journal.complete(operation, asked, **({} if answer is None else header_of(answer)))

    async def hang(self, key: str, lease: int) -> bool:
        """Puts a key that goes with the lease. Whether that was answered."""
        operation = self._journal.invoke(self._process, HANG, key=key, lease=lease)
        asked = await self._client.call("KV.Put", rpc.PutRequest(key=key.encode(), value=b"x", lease=lease))
        answer = answer_of(asked)
        self._journal.complete(operation, asked, **({} if answer is None else header_of(answer)))
        return answer is not None

    async def look(self, lease: int, key: str) -> bool:
        """At a key of the lease, linearizably. Whether it is there, or nobody knows."""
        operation = self._journal.invoke(self._process, Kind.LOOK.value, lease=lease, key=key)
        asked = await self._client.call("KV.Range", rpc.RangeRequest(key=key.encode()))
        answer = answer_of(asked)
        found = {} if answer is None else {**header_of(answer), "there": bool(answer.kvs)}
        self._journal.complete(operation, asked, **found)
        return bool(found.get("there", True))

    async def time_to_live(self, lease: int) -> bool:
        """Whether it is there, or nobody knows."""
        operation = self._journal.invoke(self._process, Kind.LOOK.value, lease=lease)
        asked = await self._client.call("Lease.LeaseTimeToLive", rpc.LeaseTimeToLiveRequest(ID=lease))
        answer = answer_of(asked)
        found = {} if answer is None else {**header_of(answer), "there": answer.TTL >= 0}
        self._journal.complete(operation, asked, **found)
        return bool(found.get("there", True))


class LeaseWorker:
    """One process: one lease after another."""

    def __init__(self, process: int, client: StoreClient, journal: Journal, chance: random.Random) -> None:
        self._process = process
        self._calls = LeaseCalls(process, client, journal)
        self._chance = chance

    async def run(self, ended: asyncio.Event) -> None:
        for number in count():
            if ended.is_set():
                return
            ttl_s = self._chance.choice(TTLS_S)
            lease = await self._calls.grant(ttl_s)
            keys = [f"{PREFIX}{self._process}.{number}.{each}" for each in range(KEYS)]
            if lease and all([await self._calls.hang(key, lease) for key in keys]):
                await self._live(lease, ttl_s, keys, ended)

    async def _live(self, lease: int, ttl_s: int, keys: Sequence[str], ended: asyncio.Event) -> None:
        fate = self._chance.random()
        if fate < KEPT:
            await self._keep(lease, ttl_s, keys, ended)
        elif fate < KEPT + REVOKED:
            await happens(ended, self._chance.uniform(0, ttl_s / 2))
            await self._calls.revoke(lease)
        elif fate < KEPT + REVOKED + LATE:
            await self._keep_late(lease, ttl_s, keys, ended)
        await self._see_it_go(lease, ttl_s, keys, ended)

    async def _keep(self, lease: int, ttl_s: int, keys: Sequence[str], ended: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._chance.uniform(*KEPT_FOR_S)
        while loop.time() < until_s and await self._calls.keep_alive(lease):
            await self._calls.look(lease, self._chance.choice(keys))
            if await happens(ended, self._chance.uniform(0, ttl_s / 2)):
                return

    async def _keep_late(self, lease: int, ttl_s: int, keys: Sequence[str], ended: asyncio.Event) -> None:
        """A keepalive around the end of the lease's time: some meet the lease as it is just being ended."""
        for _ in range(LATE_ROUNDS):
            if await happens(ended, ttl_s - SOON_S + self._chance.uniform(*LATE_BY_S)):
                return
            if not await self._calls.keep_alive(lease):
                return
            if await happens(ended, SOON_S):
                return
            await self._calls.look(lease, self._chance.choice(keys))

    async def _see_it_go(self, lease: int, ttl_s: int, keys: Sequence[str], ended: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + PATIENCE * ttl_s
        while loop.time() < until_s:
            is_there = await (
                self._calls.look(lease, self._chance.choice(keys))
                if self._chance.random() < 0.7
                else self._calls.time_to_live(lease)
            )
            if not is_there:
                # Gone for all: also for whoever asks now.
                await self._calls.keep_alive(lease)
                await self._calls.look(lease, self._chance.choice(keys))
                return
            if await happens(ended, LOOK_EVERY_S):
                return


def answer_of(asked: Asked) -> Any:
    """None if there was none."""
    return asked.outcome.message if isinstance(asked.outcome, Answered) else None


# The history as the check has it ----------------------------------------------------------------------------------


def lease_operations_of(calls: Iterable[Call]) -> Iterator[LeaseOperation]:
    """A grant without an answer names no lease: nobody hangs anything on it."""
    for call in calls:
        told = call.told
        if "lease" in told:
            yield LeaseOperation(
                call.id,
                Kind(call.op),
                told["lease"],
                call.invoked_ns,
                call.completed_ns,
                call.outcome,
                ttl_s=told.get("ttl", 0),
                asked_ttl_s=told.get("asked", 0),
                is_there=told.get("there", True),
            )


def leases_of_keys(history: History) -> dict[str, int]:
    return {call.told["key"]: call.told["lease"] for call in history.of(HANG)}


AFTERMATH_NS = 3 * SECOND_NS
"""A fault's end may cost as much."""
CLOCK_MADE_NS = 2 * SECOND_NS
"""A new leader has begun to time the leases so long after the first answer of its term."""


def disturbances_of(windows: Iterable[Window], calls: Iterable[Call]) -> list[Disturbance]:
    """Faults, and changes of the term as answers tell them. From the last answer of a term to the first one of the next
    there was an election, somewhere."""
    found = [Disturbance(window.began_ns, window.ended_ns + AFTERMATH_NS) for window in windows]
    answered = sorted(
        (call for call in calls if call.is_ok and "term" in call.told and not call.told.get("serializable")),
        key=lambda call: call.completed_ns,
    )
    term, last_ns = 0, 0
    for call in answered:
        if call.told["term"] > term:
            if term:
                found.append(Disturbance(last_ns, call.completed_ns + CLOCK_MADE_NS))
            term = call.told["term"]
        last_ns = call.completed_ns
    return found


RATES = frozenset({"clock-drift", "every", "all"})
"""The nemeses under which a node's clocks run at half to double their rate."""
RATE = 2.0


def bounds_of(nemeses: Iterable[str]) -> Bounds:
    return Bounds(rate=1.0 if RATES.isdisjoint(nemeses) else RATE)

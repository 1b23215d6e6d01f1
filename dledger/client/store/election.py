"""Elections: one leader at a time under a name, with a value for all to see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.client.store.candidacy import Leadership, first_created, queue_prefix
from dledger.client.store.results import KeyValue
from dledger.common.errors import Compacted

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dledger.client.store.candidacy import StoreCalls
    from dledger.client.store.keys import Text


class Election:
    """``store.election("name")``. Its candidates and observers may be programs in Go, with etcd's ``concurrency``."""

    def __init__(self, store: StoreCalls, name: Text, ttl_s: int) -> None:
        self._store = store
        self._name = name
        self._ttl_s = ttl_s
        self._prefix = queue_prefix(name)

    def campaign(self, value: Text, *, wait_ms: float | None = None) -> Leadership:
        """For ``async with``: waits until it is elected, for ``wait_ms`` at most, and resigns at the end."""
        lease = self._store.lease(self._ttl_s)
        return Leadership(self._store, self._name, lease, value=value, owns_lease=True, wait_ms=wait_ms)

    async def leader(self, *, timeout_ms: float | None = None) -> KeyValue | None:
        """The leader's key now; its value is what the leader said. None: nobody leads."""
        return (await self._first(timeout_ms))[0]

    async def _first(self, timeout_ms: float | None = None) -> tuple[KeyValue | None, int]:
        """And the revision as of which it is so."""
        answer = await self._store.read(first_created(self._prefix), timeout_ms)
        return (KeyValue.from_wire(answer.kvs[0]) if answer.kvs else None), answer.header.revision

    async def observe(self) -> AsyncGenerator[KeyValue]:
        """The leader, and every later one, and what they proclaim, until the caller leaves the loop. What came and went
        while an earlier one was told may be passed over."""
        told: tuple[bytes, int] | None = None
        while True:
            leader, revision = await self._first()
            if leader is not None and told != (leader.key, leader.mod_revision):
                told = leader.key, leader.mod_revision
                yield leader
            await self._change_behind(revision)

    async def _change_behind(self, revision: int) -> None:
        async with self._store.watch(prefix=self._prefix, start_revision=revision + 1) as watch:
            try:
                async for _ in watch:
                    return
            except Compacted:
                return  # who leads is asked again

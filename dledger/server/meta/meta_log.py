"""The log of `meta` as any node writes to it: by its leader, which is this node or another one.

::

    submit ─▶ append ─┐
    submit ─▶ append ─┤ one turn of the loop ─▶ one call, one frame ─▶ the leader
    submit ─▶ append ─┘

A call that was surely not carried out is made again, for as long as elections take. A call that is under way when the
leader changes has an unknown outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, NamedTuple, TypeVar

from dledger.common.backoff import Backoff
from dledger.common.errors import Code, DLedgerError, OutcomeUnknown, error
from dledger.common.futures import retrieve
from dledger.rpc.client.retry import PASSING
from dledger.server.meta.at_leader import AtLeader
from dledger.server.meta.lease_keeper import LeaderLeaseTimes
from dledger.server.meta.meta_leader import MetaLeader

Answer = TypeVar("Answer")

WAIT_S = 7.0
"""For a leader that carries the call out; etcd gives its clients the same."""
MAX_BYTES_AT_ONCE = 512 << 10
"""Of the records of one call, unless a single one is larger."""


class _Queued(NamedTuple):
    record: bytes
    appended: asyncio.Future[int]
    """Its index."""


class MetaLog:
    """On one node: ``here`` while it leads, else ``there``."""

    def __init__(self, here: AtLeader, there: AtLeader, leader: MetaLeader, random: Random) -> None:
        self._here = here
        self._there = there
        self._leader = leader
        self._random = random
        self._queue: list[_Queued] = []
        self._calls: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Ends the appends under way: their outcome is unknown."""
        for task in self._calls:
            task.cancel()
        if self._calls:
            await asyncio.wait(self._calls)

    async def commit_index(self) -> int:
        return await self._ask(lambda leader: leader.read_index())

    async def keep_alive(self, lease_id: int) -> int:
        return await self._ask(lambda leader: leader.keep_alive(lease_id))

    async def lease_times(self, lease_id: int) -> LeaderLeaseTimes:
        return await self._ask(lambda leader: leader.lease_times(lease_id))

    async def append(self, record: bytes) -> int:
        loop = asyncio.get_running_loop()
        queued = _Queued(record, loop.create_future())
        if not self._queue:
            loop.call_soon(self._flush)
        self._queue.append(queued)
        return await queued.appended

    def _flush(self) -> None:
        batch: list[_Queued] = []
        size_bytes = 0
        queue, self._queue = self._queue, []
        for each in queue:
            if batch and size_bytes + len(each.record) > MAX_BYTES_AT_ONCE:
                self._begin(batch)
                batch, size_bytes = [], 0
            batch.append(each)
            size_bytes += len(each.record)
        self._begin(batch)

    def _begin(self, batch: list[_Queued]) -> None:
        task = asyncio.get_running_loop().create_task(self._append(batch), name="append-commands")
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _append(self, batch: list[_Queued]) -> None:
        records = [each.record for each in batch]
        try:
            base_index = await self._ask(lambda leader: leader.append(records), is_change=True)
        except DLedgerError as failure:
            for each in batch:
                _fail(each.appended, error(failure.code, str(failure), **failure.metadata))
        except BaseException:
            for each in batch:
                _fail(each.appended, error(Code.TERM_CHANGED, "the append was ended; its outcome is unknown"))
            raise
        else:
            for ordinal, each in enumerate(batch):
                if not each.appended.done():
                    each.appended.set_result(base_index + ordinal)

    async def _ask(self, call: Callable[[AtLeader], Awaitable[Answer]], *, is_change: bool = False) -> Answer:
        """Raises the last refusal after ``WAIT_S``. Raises OutcomeUnknown at once, for what ``is_change``."""
        loop = asyncio.get_running_loop()
        backoff, until_s = Backoff(self._random), loop.time() + WAIT_S
        while True:
            changed = self._leader.changed()
            try:
                return await self._ask_once(call, changed)
            except DLedgerError as refusal:
                is_unknown = is_change and isinstance(refusal, OutcomeUnknown)
                if is_unknown or refusal.code not in PASSING or loop.time() >= until_s:
                    raise
            await asyncio.wait([changed], timeout=backoff.next_s())

    async def _ask_once(self, call: Callable[[AtLeader], Awaitable[Answer]], changed: asyncio.Future[None]) -> Answer:
        try:
            return await call(self._here)
        except DLedgerError as refusal:
            if refusal.code is not Code.NOT_LEADER or not self._leader.id:
                raise
        asked = asyncio.ensure_future(call(self._there))
        asked.add_done_callback(retrieve)  # the caller may be gone, or may have turned to the next leader
        awaited: tuple[asyncio.Future[Any], ...] = (asked, changed)
        try:
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not asked.done():
                asked.cancel()
        if asked.done():
            return asked.result()
        raise error(Code.TERM_CHANGED, "the leader of the store changed while it was asked")


def _fail(appended: asyncio.Future[int], failure: DLedgerError) -> None:
    if not appended.done():
        appended.set_exception(failure)
        retrieve(appended)  # its caller may be gone

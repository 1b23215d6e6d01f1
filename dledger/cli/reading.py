"""Shared by ``get`` and ``tail``: the copy to read, how far it reaches, and printing it."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from dledger.cli.index_ranges import Bounds, Range, resolve
from dledger.cli.output import Progress
from dledger.cli.record_format import RecordWriter, Render
from dledger.common.errors import Code, error
from dledger.common.types import Consistency

if TYPE_CHECKING:
    from dledger.client import Log


class Reading:
    """The log, linearizable; or with ``node`` that node's own copy, as far as it knows it to be committed."""

    def __init__(self, log: Log, node: str | None) -> None:
        self._log = log
        self._node = node
        self._consistency = Consistency.LINEARIZABLE if node is None else Consistency.COMMITTED

    async def span(self, wanted: Range) -> tuple[int, int]:
        """The indexes [start, end) that are meant by ``wanted`` now."""
        return await resolve(wanted, await self._bounds(), self._timestamp_of, time.time_ns() // 1_000_000)

    async def copy(self, start: int, end: int | None, render: Render, *, follow: bool = False) -> None:
        """Prints the records from ``start`` on, before ``end``, each by ``render``."""
        total = None if end is None else end - start
        writer = RecordWriter(sys.stdout.buffer, render)
        batches = self._log.read_batches(start, end, follow=follow, consistency=self._consistency, node=self._node)
        with Progress("reading", total) as progress:
            async for batch in batches:
                writer.write(batch.base_index, batch.term, batch.timestamp_ms, batch.records())
                if total is not None:
                    progress.update(batch.end_index - start)

    async def _bounds(self) -> Bounds:
        if self._node is None:
            first, commit_index = await self._log.bounds()
            return Bounds(first, commit_index + 1)
        status = await self._log.status()
        node = status.node(self._node)
        if node is None:
            known = ", ".join(member.id for member in status.nodes)
            raise error(Code.UNKNOWN_MEMBER, f"there is no node {self._node!r}: there are {known}")
        if not node.reachable:
            raise error(Code.NETWORK_ERROR, f"{node.id} at {node.address} cannot be reached: {node.problem}")
        return Bounds(node.first_index, node.commit_index + 1)

    async def _timestamp_of(self, index: int) -> int:
        return (await self._log.get(index, self._consistency, node=self._node)).timestamp_ms

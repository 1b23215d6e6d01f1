"""Shared by ``get`` and ``tail``: the copy to read, how far it reaches, and printing it."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from dledger.cli.index_ranges import Range, resolve
from dledger.cli.output import Progress
from dledger.cli.record_format import RecordWriter, Render
from dledger.common.errors import Code, error
from dledger.common.places import Bounds, Kind, Place
from dledger.common.types import Consistency

if TYPE_CHECKING:
    from collections.abc import Callable

    from dledger.client import Batch, Log


class Reading:
    """The log, linearizable; or with ``node`` that node's own copy, as far as it knows it to be committed."""

    def __init__(self, log: Log, node: str | None) -> None:
        self._log = log
        self._node = node
        self._consistency = Consistency.LINEARIZABLE if node is None else Consistency.COMMITTED

    async def span(self, wanted: Range) -> tuple[int, int]:
        """The indexes [start, end) that are meant by ``wanted`` now."""
        return await resolve(wanted, await self._bounds(), self._timestamp_of, _now_ms())

    async def copy(self, start: int, end: int, render: Render) -> None:
        """Prints the records from ``start`` on, before ``end``, each by ``render``."""
        if start == end:
            return
        with Progress("reading", end - start) as progress:
            await self._print(render, lambda batch: progress.update(batch.end_index - start), start=start, end=end)

    async def follow(self, place: Place, render: Render) -> None:
        """Prints the records from ``place`` on, and new ones. From a future time on it prints no record of an earlier
        time."""
        place = place.at(_now_ms())
        if place.kind is Kind.TIME:
            await self._print(render, since=place.value, follow=True)
        else:
            start, _ = await self.span(Range(place, None))
            await self._print(render, start=start, follow=True)

    async def _print(self, render: Render, tell: Callable[[Batch], None] = lambda _: None, **which: Any) -> None:
        writer = RecordWriter(sys.stdout.buffer, render)
        async for batch in self._log.read_batches(**which, consistency=self._consistency, node=self._node):
            writer.write(batch.base_index, batch.term, batch.timestamp_ms, batch.records())
            tell(batch)

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


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

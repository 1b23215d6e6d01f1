"""The reads of one log: gets, ranges and bounds. They are there from the log's opening to its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.client.bounds import find_bounds, list_segments
from dledger.client.getter import Getter
from dledger.client.range_reader import Range, Reader
from dledger.client.starts import Found, find_start
from dledger.common.deadline import Deadline
from dledger.common.places import Bounds

if TYPE_CHECKING:
    import asyncio
    import random
    from collections.abc import AsyncGenerator, Callable

    from dledger.client.leader_locator import LeaderLocator
    from dledger.client.results import Batch, SegmentInfo
    from dledger.client.waits import Waits
    from dledger.common.types import Consistency, Entry


class Reads:
    """The reading half of ``Log``, after the checks of its arguments. ``check_open`` raises once the log is closed."""

    def __init__(
        self,
        leaders: LeaderLocator,
        group: str,
        rng: random.Random,
        *,
        waits: Waits,
        check_open: Callable[[], None],
    ) -> None:
        self._waits = waits
        self._leaders = leaders
        self._group = group
        self._rng = rng
        self._check_open = check_open
        self._getters: dict[tuple[Consistency, str | None], Getter] = {}
        self._readers: set[Reader] = set()

    def get(self, index: int, consistency: Consistency, node: str | None, timeout_ms: float) -> asyncio.Future[Entry]:
        """The committed record at ``index``. Raises PendingFull; the future raises the rest."""
        getter = self._getters.get((consistency, node))
        if getter is None or not getter.is_running:
            getter = Getter(self._leaders, self._group, consistency, node, rng=self._rng, waits=self._waits)
            self._getters[consistency, node] = getter
        return getter.get(index, timeout_ms)

    async def lists(self, wanted: Range, timeout_ms: float) -> AsyncGenerator[list[Batch]]:
        """The batches of a range, in lists: one a message."""
        found = await self._find_start(wanted, timeout_ms)
        reader = Reader(
            self._leaders,
            self._group,
            wanted,
            found,
            timeout_ms,
            rng=self._rng,
            waits=self._waits,
            check_open=self._check_open,
        )
        lists = reader.batches()
        self._readers.add(reader)
        try:
            async for batches in lists:
                yield batches
        finally:
            self._readers.discard(reader)
            await lists.aclose()

    async def _find_start(self, wanted: Range, timeout_ms: float) -> Found:
        """Asks for the index of the range's beginning, unless the caller has named it. For a time it asks as often as
        the number of records has binary digits."""
        place = wanted.start
        if place.is_named:
            return Found(place.value, place.value)
        deadline = Deadline(timeout_ms)

        async def timestamp_of(index: int) -> int:
            left_ms = max(1.0, deadline.left_ms)
            return (await self.get(index, wanted.consistency, wanted.node, left_ms)).timestamp_ms

        first, commit_index = await self.bounds(wanted.consistency, timeout_ms, node=wanted.node)
        return await find_start(place, Bounds(first, commit_index + 1), timestamp_of)

    async def bounds(self, consistency: Consistency, timeout_ms: float, *, node: str | None = None) -> tuple[int, int]:
        """The first index and the commit index."""
        return await find_bounds(
            self._leaders, self._group, consistency, node, timeout_ms=timeout_ms, rng=self._rng, waits=self._waits
        )

    async def segments(self, node: str | None, timeout_ms: float) -> list[SegmentInfo]:
        """How the log is cut into segments."""
        return await list_segments(
            self._leaders, self._group, node, timeout_ms=timeout_ms, rng=self._rng, waits=self._waits
        )

    async def close(self) -> None:
        """Ends waiting gets, and the streams under way."""
        for getter in self._getters.values():
            await getter.close()
        for reader in self._readers:
            reader.hang_up()

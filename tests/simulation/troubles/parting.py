"""Rot where a leader's log parts from the one that the others go on with.

What is damaged there was committed in part, and reaches into what nobody else got: no copy repairs it. It goes by the
next leader's word, and is owed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dledger.storage.segment import FIRST_PAGE_BYTES, unpack_mark
from tests.simulation.host import SimHost
from tests.simulation.troubles.scene import Scene, Trouble
from tests.simulation.truth import stored_frames

ALONE_S = 0.3
"""It goes on leading for longer, and appends what nobody gets."""
FRAMES_BEFORE = 3
"""At most so many that are committed are damaged, and as many behind them."""


class PartingTroubles:
    def __init__(self, scene: Scene, may_lose: Callable[[SimHost], bool]) -> None:
        """``may_lose``: whether the others could do without the disk."""
        self._scene = scene
        self._random = scene.random
        self._may_lose = may_lose

    def all(self) -> list[Trouble]:
        return [Trouble(2, self.rot_where_logs_part)]

    async def rot_where_logs_part(self) -> None:
        host = next((leader for leader in self._scene.cluster.leaders() if leader.replica.core.is_ready), None)
        if host is None or not self._may_lose(host):
            return
        self._scene.make_peace()
        self._scene.cut_off([host])
        await asyncio.sleep(ALONE_S)
        is_fit = host.leads and not host.is_rotten and self._may_lose(host)
        places = _around_the_commit(host, self._random.randint(1, FRAMES_BEFORE)) if is_fit else []
        if places:
            path = host.replica.log._files.active.path  # type: ignore[attr-defined]
            for begin, end in places:
                at = self._random.randrange(begin, end)
                host.spoil(path, at, bytes([host.platter.find(path).data[at] ^ 1 << self._random.randrange(8)]))
            self._scene.hit("rot where logs part", host.id, path)
            host.crash()
        self._scene.make_peace()


def _around_the_commit(host: SimHost, count: int) -> list[tuple[int, int]]:
    """Where so many frames up to the commit index lie, and as many behind it; empty where they are not all in the
    active segment, and marked as durable."""
    active, commit = host.replica.log._files.active, host.replica.core.commit_position  # type: ignore[attr-defined]
    file = host.platter.find(active.path)
    mark = unpack_mark(bytes(file.medium[:FIRST_PAGE_BYTES]))
    found = [
        (begin, end)
        for position, begin, end in stored_frames(bytes(file.data))
        if commit - count < position <= commit + count and mark is not None and end <= mark.offset
    ]
    return found if len(found) == 2 * count else []

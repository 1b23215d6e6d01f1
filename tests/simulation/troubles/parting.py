"""Rot where a leader's log parts from the one that the others go on with.

What is damaged there was committed in part, and reaches into what nobody else got: no copy repairs it. It goes by the
next leader's word, and is owed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.simulation.host import SimHost
from tests.simulation.seat import Seat
from tests.simulation.troubles.disks import durable_extent
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
        leaders = self._scene.pick().leaders()
        seat = next((leader for leader in leaders if leader.replica.core.is_ready), None)
        if seat is None or not self._may_lose(seat.host):
            return
        self._scene.make_peace()
        self._scene.cut_off([seat.host])
        await asyncio.sleep(ALONE_S)
        is_fit = seat.leads and not seat.is_rotten and self._may_lose(seat.host)
        if is_fit:
            self._spoil(seat, self._random.randint(1, FRAMES_BEFORE))
        self._scene.make_peace()

    def _spoil(self, seat: Seat, count: int) -> None:
        """So many frames up to the commit index, and as many behind it, where they are all in the active segment and
        marked as durable. Then the power goes."""
        path = seat.replica.log._files.active.path  # type: ignore[attr-defined]
        extent, commit = durable_extent(seat.host, path), seat.replica.core.commit_position
        places = [
            (begin, end)
            for position, begin, end in stored_frames(seat.host.platter.find(path).data)
            if commit - count < position <= commit + count and extent is not None and end <= extent[1]
        ]
        if len(places) == 2 * count:
            for begin, end in places:
                self._scene.flip_a_bit(seat.host, path, begin, end)
            self._scene.hit("rot where logs part", seat.name, path)
            seat.host.crash()

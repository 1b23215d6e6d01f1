"""Whether the other voters' disks work, as judged by a leader with a disk that may hang."""

from __future__ import annotations

from math import inf

from dledger.common.types import Position


class OthersProgress:
    """For how long the other voters have made progress: they hold all of the log, or more and more of it::

        held      ▁▂▃▄▅▅▅▅▅▅▅▅▆▇      ▅▅▅ longer than ``standstill_ms``: nothing came of what they were sent
                  ├────┤      ├─▶     since when they go on, ``lasts_ms``

    ``held`` is the position that a majority of the voters has acknowledged without this leader. Only such a majority
    could elect another leader, as votes need working disks, and commit anything under it.
    """

    __slots__ = ("_held", "_moved_ms", "_since_ms", "_standstill_ms")

    def __init__(self, standstill_ms: float) -> None:
        self._standstill_ms = standstill_ms
        self._held = Position(0)
        self._since_ms = self._moved_ms = -inf

    def look(self, held: Position, last: Position, now_ms: float) -> None:
        """Called every heartbeat interval. ``last``: where the leader's log ends."""
        if held > self._held or held >= last:
            if self._stands_still(now_ms):
                self._since_ms = now_ms
            self._moved_ms = now_ms
        self._held = held

    def go_on(self, now_ms: float) -> bool:
        """Whether they have for longer than ``standstill_ms``."""
        return self.lasts_ms(now_ms) > self._standstill_ms

    def lasts_ms(self, now_ms: float) -> float:
        """0.0 if they stand still."""
        return 0.0 if self._stands_still(now_ms) else now_ms - self._since_ms

    def _stands_still(self, now_ms: float) -> bool:
        return now_ms - self._moved_ms > self._standstill_ms

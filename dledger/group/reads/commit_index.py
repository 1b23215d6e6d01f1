"""Which record index a commit position stands for: users count records, Raft counts frames."""

from __future__ import annotations

from collections import deque

from dledger.common.types import Position


class CommitIndex:
    """Remembers, for frames appended and not committed yet, where their records end.

    Of the frames from before a restart only the last is remembered. Until all of them are committed, ``index`` may be
    lower than the last committed record, never higher. Invariant: it never falls; −1 is "none".
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self._ends: deque[tuple[int, int]] = deque()

    def appended(self, position: int, end_index: int) -> None:
        self._ends.append((position, end_index))

    def truncated(self, after: Position) -> None:
        while self._ends and self._ends[-1][0] > after:
            self._ends.pop()

    def reset(self, first_index: int) -> None:
        """The log begins anew with record ``first_index``; all before it is committed, and none of it is here."""
        assert first_index > self.index, "a log began anew below what is committed"
        self._ends.clear()
        self.index = first_index - 1

    def committed(self, position: Position) -> None:
        end_index = self.index + 1
        while self._ends and self._ends[0][0] <= position:
            end_index = self._ends.popleft()[1]
        assert end_index > self.index, "the commit index fell"
        self.index = end_index - 1

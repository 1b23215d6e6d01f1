"""The newest frames, in memory: what followers and readers mostly ask for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from dledger.log.frame.frame import MAX_FRAMES_READ, Frame

FRAME_OVERHEAD_BYTES = 1024
"""About the memory that Python needs for a frame beside its bytes. It is counted, so many small frames do not take many
times the limit."""
_COMPACT_AT = 4096


class TailCache:
    """Invariant: positions are dense; the sum of sizes stays under the limit, or there is one frame only. What was
    evicted and is still in memory takes an eighth of the limit at most."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._frames: list[Frame] = []
        self._head = 0  # the frames before it were evicted, and go in one piece
        self._evicted_bytes = 0
        self._size_bytes = 0

    def extend(self, frames: Sequence[Frame]) -> None:
        """The frames behind the newest."""
        self._frames.extend(frames)
        size_bytes = self._size_bytes
        for frame in frames:
            size_bytes += frame.header.frame_len + FRAME_OVERHEAD_BYTES
        kept, head, newest = self._frames, self._head, len(self._frames) - 1
        while size_bytes > self._max_bytes and head < newest:
            evicted = kept[head].header.frame_len + FRAME_OVERHEAD_BYTES
            size_bytes -= evicted
            self._evicted_bytes += evicted
            head += 1
        if head >= _COMPACT_AT or head > newest // 2 or self._evicted_bytes * 8 > self._max_bytes:
            del kept[:head]
            head = self._evicted_bytes = 0
        self._head = head
        self._size_bytes = size_bytes

    def truncate(self, after: int) -> None:
        """Forgets every frame behind position ``after``."""
        self._keep(frame for frame in self._frames[self._head :] if frame.header.position <= after)

    def begin_behind(self, position: int) -> None:
        """Forgets every frame up to ``position``."""
        if self._head == len(self._frames) or self._frames[self._head].header.position > position:
            return
        self._keep(frame for frame in self._frames[self._head :] if frame.header.position > position)

    def _keep(self, frames: Iterable[Frame]) -> None:
        kept = list(frames)
        self._frames, self._head, self._evicted_bytes, self._size_bytes = [], 0, 0, 0
        self.extend(kept)

    def get(self, first: int, max_bytes: int) -> list[Frame] | None:
        """Frames from position ``first`` on, at least one, about ``max_bytes`` and at most
        ``MAX_FRAMES_READ``; None when the first is not here."""
        frames, head = self._frames, self._head
        if head == len(frames):
            return None
        at = head + first - frames[head].header.position
        if not head <= at < len(frames):
            return None
        end = at
        size_bytes = 0
        while end < min(len(frames), at + MAX_FRAMES_READ):
            size_bytes += frames[end].header.frame_len
            if size_bytes > max_bytes and end > at:
                break
            end += 1
        return frames[at:end]

    def frame_of(self, index: int) -> Frame | None:
        """The frame that holds record ``index``; None when it is not here."""
        frames, head = self._frames, self._head
        if head == len(frames) or index < frames[head].header.base_index:
            return None
        at = bisect_right(frames, index, lo=head, key=_end_index)
        return frames[at] if at < len(frames) else None


def _end_index(frame: Frame) -> int:
    return frame.header.end_index

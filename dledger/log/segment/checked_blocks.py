"""Records by index, without the rest of their frames: out of blocks that were checked whole before.

A block lies between two entries of the sparse index. The sums of a large frame's pieces were kept when it was written
(large_frames.py). Those of any other block are kept here, once it has been read and checked.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from dledger.common.types import Entry
from dledger.log.frame.frame import Frame
from dledger.log.segment.pieces import Block, Body, ReadAt
from dledger.log.segment.segment import Segment

MAX_KEPT_BYTES = 16 << 20
"""For all sums: those of gigabytes of large batches, or of some hundred megabytes of small ones."""
_BLOCK_OVERHEAD_BYTES = 600


class CheckedBlocks:
    """The sums of blocks of one log. Frames that are replaced must be forgotten before they are asked for again."""

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self.generation = 0
        """Rises when everything is forgotten: what was read before is not to be noted any more."""
        self._max_bytes = max_bytes
        self._kept_bytes = 0
        self._blocks: dict[tuple[Segment, int], Block | Body] = {}  # the oldest first

    def clear(self) -> None:
        """Forgets everything."""
        self.generation += 1
        self._blocks.clear()
        self._kept_bytes = 0

    def note(self, segment: Segment, offset: int, frames: Sequence[Frame]) -> None:
        """``frames``, which lie one behind the other from ``offset`` on, were read from the file, and all match."""
        if self.knows(segment, offset):
            return
        self._blocks[segment, offset] = block = Body.of(frames[0]) if len(frames) == 1 else Block.of(frames)
        self._kept_bytes += _cost_bytes(block)
        while self._kept_bytes > self._max_bytes:
            oldest = next(iter(self._blocks))
            self._kept_bytes -= _cost_bytes(self._blocks.pop(oldest))

    def knows(self, segment: Segment, offset: int) -> bool:
        """Whether the sums of the block at ``offset`` are at hand."""
        return self._block(segment, offset) is not None

    def entry(self, segment: Segment, offset: int, index: int, read: ReadAt) -> Entry | None:
        """Record ``index`` from the block at ``offset``. None if the record is not in it, the block was not checked,
        reading would wait, or the bytes read differ from those checked."""
        block = self._block(segment, offset)
        return None if block is None else block.entry(offset, index, read)

    def _block(self, segment: Segment, offset: int) -> Block | Body | None:
        block = self._blocks.get((segment, offset))
        if block is None and segment.index is not None:
            block = segment.index.large_at(offset)
        return block


def _cost_bytes(block: Block | Body) -> int:
    return _BLOCK_OVERHEAD_BYTES + sys.getsizeof(block.sums.sums)

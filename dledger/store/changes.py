"""The changes of the store in their order, from the oldest one that is kept on.

They are counted from 0 over the life of the store, so a number means the same change whatever was dropped before it.
They lie in blocks: neither growing nor dropping moves what is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from dledger.store.records import DIGEST_BYTES, Record, mod_of

_BLOCK_BITS = 12
_BLOCK = 1 << _BLOCK_BITS
_MARK_BYTES = 2 * DIGEST_BYTES


class ChangeLog:
    """Their mod revisions never fall."""

    def __init__(self) -> None:
        self.first = 0
        """The number of the oldest change that is kept."""
        self.end = 0
        """One past the last."""
        self._blocks: dict[int, list[Record | None]] = {}

    def append(self, change: Record) -> None:
        at = self.end
        if at & (_BLOCK - 1):
            self._blocks[at >> _BLOCK_BITS].append(change)
        else:
            self._blocks[at >> _BLOCK_BITS] = [change]
        self.end = at + 1

    def __getitem__(self, number: int) -> Record:
        assert self.first <= number < self.end, f"change {number} is not kept: {self.first} to {self.end} are"
        change = self._blocks[number >> _BLOCK_BITS][number & (_BLOCK - 1)]
        assert change is not None, "only changes before the first one are blank"
        return change

    def find(self, revision: int) -> int:
        """The number of the first change that is kept of this revision or a later one; ``end`` where there is none."""
        low, high = self.first, self.end
        while low < high:
            middle = (low + high) // 2
            if mod_of(self[middle]) < revision:
                low = middle + 1
            else:
                high = middle
        return low

    def between(self, first: int, end: int) -> Iterator[Record]:
        return (self[number] for number in range(first, end))

    def drop_first(self) -> None:
        at = self.first
        self._blocks[at >> _BLOCK_BITS][at & (_BLOCK - 1)] = None
        self.first = at + 1
        if not self.first & (_BLOCK - 1):
            del self._blocks[at >> _BLOCK_BITS]


class Mark(NamedTuple):
    """Of a revision, to tell the digest of the store as compacted there, or as it was then (``Mvcc.digest``)."""

    changed: int
    """The sum of the hashes of all changes up to it."""
    base: int
    """What the digest of a store that is compacted at it has beside the changes from there on, less the changes before
    it."""


class Marks:
    """By revision, for all revisions from ``first`` on without a gap."""

    def __init__(self, first: int) -> None:
        self.first = first
        self._end = first
        self._blocks: dict[int, bytearray] = {}

    def append(self, changed: int, base: int) -> None:
        """Both as they are modulo 2 ** 128."""
        at = self._end
        mark = (changed | base << 8 * DIGEST_BYTES).to_bytes(_MARK_BYTES, "little")
        block = self._blocks.get(at >> _BLOCK_BITS)
        if block is None:
            block = self._blocks[at >> _BLOCK_BITS] = bytearray(_MARK_BYTES * (at & (_BLOCK - 1)))
        block += mark
        self._end = at + 1

    def get(self, revision: int) -> Mark | None:
        """None before ``first``."""
        if revision < self.first:
            return None
        at = _MARK_BYTES * (revision & (_BLOCK - 1))
        data = self._blocks[revision >> _BLOCK_BITS][at : at + _MARK_BYTES]
        return Mark(
            int.from_bytes(data[:DIGEST_BYTES], "little"),
            int.from_bytes(data[DIGEST_BYTES:], "little"),
        )

    def drop_before(self, revision: int) -> None:
        for block in range(self.first >> _BLOCK_BITS, revision >> _BLOCK_BITS):
            self._blocks.pop(block, None)
        self.first = max(self.first, revision)

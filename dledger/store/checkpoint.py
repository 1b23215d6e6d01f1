"""A checkpoint of the store: a head, the leases, the pairs as of the revision that is compacted at, all changes since.

::

    item: kind (1 byte), length (uint32), that many bytes

Items follow each other over the parts; one that is larger than a part goes on in the next. The digest of a store is the
sum of its items' hashes, so it can be kept up to date, and what was written can be compared with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from struct import Struct
from typing import NamedTuple

from dledger.common.errors import Code, error
from dledger.statemachine.api import MAX_PART_BYTES
from dledger.store.leases import LEASE_ITEM, Lease
from dledger.store.mvcc import Mvcc
from dledger.store.records import DIGEST_BYTES, digest_bytes, hash_of

HEAD_ITEM = b"h"
BASE_ITEM = b"b"
CHANGE_ITEM = b"c"
_ITEM = Struct("<cI")


class Item(NamedTuple):
    kind: bytes
    data: bytes


def item_hash(item: Item) -> int:
    """Of a record by itself: one of the base and a change hash alike, as compaction makes one of the other."""
    if item.kind in (BASE_ITEM, CHANGE_ITEM):
        return hash_of(item.data)
    return hash_of(item.kind + item.data)


class CheckpointView(Iterator[bytes]):
    """The parts of a checkpoint of a store as it is now: later commands do not change them.

    It costs a copy of the list of leases. The pairs are read as the parts are: meanwhile the store forgets nothing.
    Some parts are empty, so that each takes a few milliseconds at most.
    """

    def __init__(self, head: bytes, leases: list[Lease], pairs: Mvcc) -> None:
        self._pairs = pairs
        pairs.hold(self)
        first, end = pairs.changes.find(pairs.compact_revision), pairs.changes.end
        self._parts = _parts(head, leases, pairs, pairs.compact_revision, range(first, end))

    def __next__(self) -> bytes:
        part = next(self._parts, None)
        if part is None:
            self._pairs.release(self)
            raise StopIteration
        return part


def _parts(head: bytes, leases: list[Lease], pairs: Mvcc, compacted: int, changes: range) -> Iterator[bytes]:
    first: list[tuple[bytes, bytes]] = [(HEAD_ITEM, head)]
    of_leases = ((LEASE_ITEM, each.encode()) for each in leases)
    base = ((BASE_ITEM, each) if each is not None else None for each in pairs.base_records(compacted))
    since = ((CHANGE_ITEM, pairs.changes[number]) for number in changes)
    part: list[bytes] = []
    size_bytes = 0
    for item in chain(first, of_leases, base, since):
        if item is None:
            yield b""
            continue
        kind, data = item
        more_bytes = _ITEM.size + len(data)
        if size_bytes + more_bytes > MAX_PART_BYTES:
            yield from _cut(part)
            part, size_bytes = [], 0
        part += (_ITEM.pack(kind, len(data)), data)
        size_bytes += more_bytes
    yield from _cut(part)


def _cut(pieces: list[bytes]) -> Iterator[bytes]:
    joined = b"".join(pieces)
    for at in range(0, len(joined), MAX_PART_BYTES):
        yield joined[at : at + MAX_PART_BYTES]


class ItemReader:
    """Takes parts in order, gives items. ``left`` is what the last part began and did not end."""

    def __init__(self, left: bytes = b"") -> None:
        self.left = left

    def feed(self, part: bytes) -> Iterator[Item]:
        """To be used up before the next part."""
        data = self.left + part if self.left else part
        at, end = 0, len(data)
        while at + _ITEM.size <= end:
            kind, length = _ITEM.unpack_from(data, at)
            begin = at + _ITEM.size
            if begin + length > end:
                break
            at = begin + length
            yield Item(kind, data[begin:at])
        self.left = data[at:]


def fold(digest: bytes, part: bytes) -> bytes:
    """The digest of the parts before and of this one; behind it, what they leave of an item that is not at its end."""
    reader = ItemReader(digest[DIGEST_BYTES:])
    total = int.from_bytes(digest[:DIGEST_BYTES], "little")
    total += sum(map(item_hash, reader.feed(part)))
    return digest_bytes(total) + reader.left


def damaged(what: str) -> Exception:
    return error(Code.CORRUPT_LOG, f"a checkpoint of the store cannot be read: {what}")

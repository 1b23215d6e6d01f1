"""Keys, values and their history: what every key was at every revision that is not compacted. No IO.

The revision counts the changes of the store: it is 1 when the store is empty, and each transaction that changes
something raises it by one. All its changes have that revision.

Compaction at a revision forgets what was overwritten or deleted before. It is *logical*: from that moment on no answer
has anything older, on every node alike. Memory is freed afterwards in small steps (``clean``), which change no answer
and no digest. What must be left of a revision c that is compacted at: of each key that existed then its newest record;
and all changes from c on, deletions too, as a watch may begin there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from heapq import merge
from itertools import islice
from weakref import WeakSet

from sortedcontainers import SortedList

from dledger.store.changes import ChangeLog, Marks
from dledger.store.keys import KeyRange
from dledger.store.records import (
    Record,
    hash_of,
    is_tombstone,
    key_of,
    mod_of,
    pack_head,
    tombstone,
    unpack,
)

NEVER_COMPACTED = -1
FIRST_REVISION = 1
RECORD_COST_BYTES = 144
"""What a record takes in memory beside its own bytes, more or less."""
_MASK = (1 << 128) - 1
_KEYS_AT_ONCE = 1_024


class Mvcc:
    """Changes come in transactions: ``begin``, then ``put`` and ``delete``, then ``end``. Reads in between see them.

    Invariants: a key is in ``_live`` or in ``_dead`` or in neither; what is in ``_older`` of a key is older than its
    record there, oldest first; ``_order`` has the keys of ``_live``, and ``_dead_order`` those of ``_dead``.
    """

    def __init__(self, revision: int = FIRST_REVISION, compact_revision: int = NEVER_COMPACTED) -> None:
        self.revision = revision
        self.compact_revision = compact_revision
        self.size_bytes = 0
        """Of all records that are kept, as they lie in memory."""
        self.changes = ChangeLog()
        self._live: dict[bytes, Record] = {}
        self._order: SortedList = SortedList()
        self._dead: dict[bytes, Record] = {}
        """Of keys that do not exist and did at a revision that can be read."""
        self._dead_order: SortedList = SortedList()
        self._older: dict[bytes, list[Record]] = {}
        self._sub = 0
        self._changed = 0
        """The sum of the hashes of all changes."""
        self._existing = 0
        """The sum of the hashes of the records in ``_live``."""
        self._base = 0
        """See ``digest``; of the revision that is being written."""
        self._compact_base = 0
        """The same, of the revision that is compacted at."""
        self._compact_changed = 0
        """The sum of the hashes of all changes before that revision."""
        self._marks = Marks(revision + 1)
        self._clean_next = 0
        """The number of the first change that ``clean`` has to look at."""
        self._views: WeakSet[object] = WeakSet()

    def __len__(self) -> int:
        """How many keys there are."""
        return len(self._live)

    # Changes -----------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._sub = 0
        self._base = self._existing - self._changed

    @property
    def read_revision(self) -> int:
        """What a read is of, in a transaction: the next revision, once that has changes."""
        return self.revision + 1 if self._sub else self.revision

    def put(self, key: bytes, value: bytes, lease: int) -> Record | None:
        """Returns the record that it takes the place of; None: the key did not exist."""
        mod, sub = self.revision + 1, self._sub
        before = self._live.get(key)
        if before is None:
            after = pack_head(mod, mod, 1, lease, sub, len(key)) + key + value
            self._revive(key)
            self._order.add(key)
        else:
            create, mod_before, version, _, _, _ = unpack(before)
            after = pack_head(create, mod, version + 1, lease, sub, len(key)) + key + value
            self._supersede(key, before, mod_before)
        self._live[key] = after
        self._existing += self._append(after)
        return before

    def delete(self, key: bytes) -> Record:
        """Returns the record that was there. The key exists."""
        before = self._live.pop(key)
        self._order.remove(key)
        self._supersede(key, before, mod_of(before))
        after = self._dead[key] = tombstone(key, self.revision + 1, self._sub)
        self._dead_order.add(key)
        self._append(after)
        return before

    def end(self) -> bool:
        """Whether anything was changed: then the revision is the next one."""
        if not self._sub:
            return False
        self._sub = 0
        self.revision += 1
        self._changed &= _MASK
        self._existing &= _MASK
        self._marks.append(self._changed, self._base & _MASK)
        return True

    def _revive(self, key: bytes) -> None:
        dead = self._dead.pop(key, None)
        if dead is not None:
            self._dead_order.remove(key)
            self._keep_older(key, dead)

    def _supersede(self, key: bytes, before: Record, mod_before: int) -> None:
        its_hash = hash_of(before)
        self._existing -= its_hash
        if mod_before <= self.revision:
            self._base -= its_hash
        self._keep_older(key, before)

    def _keep_older(self, key: bytes, before: Record) -> None:
        older = self._older.get(key)
        if older is None:
            self._older[key] = [before]
        else:
            older.append(before)

    def _append(self, change: Record) -> int:
        """Returns its hash."""
        self._sub += 1
        self.changes.append(change)
        self.size_bytes += len(change) + RECORD_COST_BYTES
        its_hash = hash_of(change)
        self._changed += its_hash
        return its_hash

    # Reads -------------------------------------------------------------------------------------------------------

    def get(self, key: bytes) -> Record | None:
        """As it is now; None: the key does not exist."""
        return self._live.get(key)

    def get_at(self, key: bytes, revision: int) -> Record | None:
        """As it was at a revision that is not compacted."""
        found = self._newest(key, revision)
        return None if found is None or is_tombstone(found) else found

    def _newest(self, key: bytes, revision: int) -> Record | None:
        latest = self._live.get(key) or self._dead.get(key)
        if latest is None or mod_of(latest) <= revision:
            return latest
        older = self._older.get(key)
        if older is None:
            return None
        at = bisect_right(older, revision, key=mod_of)
        return older[at - 1] if at else None

    def keys(self, of: KeyRange) -> Iterator[bytes]:
        """Those that exist now, in order; to be used up before the next change."""
        if of.is_single:
            return iter((of.first,) if of.first in self._live else ())
        found: Iterator[bytes] = self._order.irange(of.first, of.end, inclusive=(True, False))
        return found

    def records(self, of: KeyRange) -> Iterator[Record]:
        """As they are now, in the order of their keys; to be used up before the next change."""
        return map(self._live.__getitem__, self.keys(of))

    def records_at(self, of: KeyRange, revision: int) -> Iterator[Record]:
        """As they were at a revision that is not compacted."""
        if revision >= self.read_revision:
            yield from self.records(of)
            return
        for key in self._keys_once(of):
            found = self._newest(key, revision)
            if found is not None and not is_tombstone(found):
                yield found

    def _keys_once(self, of: KeyRange) -> Iterator[bytes]:
        """Those that exist now, or did once, in order."""
        if of.is_single:
            return iter((of.first,))
        return merge(self.keys(of), self._dead_order.irange(of.first, of.end, inclusive=(True, False)))

    def count(self, of: KeyRange) -> int:
        """How many keys exist now."""
        if of.is_empty:
            return 0
        if of.is_single:
            return int(of.first in self._live)
        end: int = len(self._order) if of.end is None else self._order.bisect_left(of.end)
        first: int = self._order.bisect_left(of.first)
        return end - first

    # Compaction --------------------------------------------------------------------------------------------------

    def compact(self, revision: int) -> None:
        """``compact_revision`` < ``revision`` ≤ the current one."""
        assert self.compact_revision < revision <= self.revision
        mark = self._marks.get(revision)
        self.compact_revision = revision
        before = self._marks.get(revision - 1)
        self._compact_base = mark.base if mark is not None else 0
        self._compact_changed = before.changed if before is not None else 0
        self._clean_next = self.changes.first

    @property
    def needs_cleaning(self) -> bool:
        return not self._views and self._is_behind()

    def _is_behind(self) -> bool:
        at = self._clean_next
        return at < self.changes.end and mod_of(self.changes[at]) <= self.compact_revision

    def clean(self, most: int) -> bool:
        """Forgets, for about so many changes, what was compacted. Returns whether there is more to do. It does nothing
        while a view is open."""
        if self._views:
            return False
        compacted = self.compact_revision
        while most > 0 and self._is_behind():
            change = self.changes[self._clean_next]
            self._clean_next += 1
            most -= 1 + self._forget(key_of(change))
            if mod_of(change) < compacted:
                self.changes.drop_first()
        self._marks.drop_before(compacted)
        return self._is_behind()

    def _forget(self, key: bytes) -> int:
        """What nobody can read any more of this key. Returns how many records that were."""
        compacted = self.compact_revision
        latest = self._live.get(key) or self._dead.get(key)
        if latest is None:
            return 0
        forgotten = self._forget_older(key, compacted, is_latest_read=mod_of(latest) <= compacted)
        if is_tombstone(latest) and mod_of(latest) <= compacted:
            del self._dead[key]
            self._dead_order.remove(key)
            self.size_bytes -= len(latest) + RECORD_COST_BYTES
            forgotten += 1
        return forgotten

    def _forget_older(self, key: bytes, compacted: int, *, is_latest_read: bool) -> int:
        """``is_latest_read``: a read at the revision that is compacted gives the key's latest record, not an older
        one."""
        older = self._older.get(key)
        if older is None:
            return 0
        count = bisect_right(older, compacted, key=mod_of)
        if count and not is_latest_read and not is_tombstone(older[count - 1]):
            count -= 1
        self.size_bytes -= sum(map(len, older[:count])) + count * RECORD_COST_BYTES
        if count == len(older):
            del self._older[key]
        else:
            del older[:count]
        return count

    # Digests -----------------------------------------------------------------------------------------------------

    def digest(self) -> int:
        """The sum of the hashes of all records that compaction leaves, whether memory has more or not; modulo
        2 ** 128."""
        return (self._compact_base + self._changed) & _MASK

    def digest_at(self, revision: int) -> int:
        """What ``digest`` would be if the store had come to this revision, which is not compacted, and no further."""
        mark = self._marks.get(revision)
        return (self._compact_base + (mark.changed if mark is not None else 0)) & _MASK

    # Checkpoints -------------------------------------------------------------------------------------------------

    @property
    def base_digest(self) -> int:
        """The part of the digest that ``base_records`` have; modulo 2 ** 128."""
        return (self._compact_base + self._compact_changed) & _MASK

    def hold(self, view: object) -> None:
        """Nothing is forgotten from memory until ``release``, or until nobody holds the view."""
        self._views.add(view)

    def release(self, view: object) -> None:
        self._views.discard(view)

    def base_records(self, compacted: int) -> Iterator[Record | None]:
        """The part of a store compacted at ``compacted`` beside the changes from there on: of each key the record that
        is read there, if it is older. In the order of keys. Changes in between change nothing of it while a view is
        held. None comes once in so many keys: the search for the next record may take seconds."""
        behind = b""
        while keys := self._keys_behind(behind, _KEYS_AT_ONCE):
            for key in keys:
                found = self._newest(key, compacted)
                if found is not None and mod_of(found) < compacted and not is_tombstone(found):
                    yield found
            behind = keys[-1]
            yield None

    def _keys_behind(self, key: bytes, most: int) -> list[bytes]:
        """Also those that do not exist any more."""
        both = merge(*(each.irange(key, None, inclusive=(False, True)) for each in (self._order, self._dead_order)))
        return list(islice(both, most))

    def load_base(self, each: Record) -> None:
        """The next one that ``base_records`` gave, into a new store that is compacted where that one was."""
        self._live[key_of(each)] = each
        self.size_bytes += len(each) + RECORD_COST_BYTES

    def end_base(self, total: int) -> None:
        """There is no more of the base, and its digest is ``total``."""
        self._order = SortedList(self._live)
        self._existing = self._compact_base = total

    def load_change(self, change: Record) -> Record | None:
        """The next one, in order, from the compact revision on. ``end`` follows the last one. Returns the record that
        it takes the place of."""
        _, mod, version, _, sub, _ = unpack(change)
        if not sub:
            self._load_next_revision(mod)
        key = key_of(change)
        before = self._live.pop(key, None)
        if before is not None:
            self._supersede(key, before, mod_of(before))
        if version:
            self._revive(key)
            self._live[key] = change
            if before is None:
                self._order.add(key)
            self._existing += self._append(change)
            return before
        if before is not None:
            self._order.remove(key)
        self._dead[key] = change
        self._dead_order.add(key)
        self._append(change)
        return before

    def _load_next_revision(self, mod: int) -> None:
        self.end()
        if mod == self.compact_revision and not self.changes.end:
            self.revision = mod - 1
            self._marks = Marks(mod)
        assert mod == self.revision + 1, f"a change of revision {mod} follows revision {self.revision}"
        self.begin()

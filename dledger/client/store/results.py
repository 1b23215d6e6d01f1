"""What the store answers, as values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, overload

if TYPE_CHECKING:
    from dledger.etcdpb import kv_pb2


class KeyValue(NamedTuple):
    """A key as of one revision: ``create_revision`` is of the put that made it, ``mod_revision`` of the last put."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    """How many puts since it was made."""
    lease: int = 0
    """It goes with this lease; 0: with none."""

    @staticmethod
    def from_wire(pair: kv_pb2.KeyValue) -> KeyValue:
        return KeyValue(pair.key, pair.value, pair.create_revision, pair.mod_revision, pair.version, pair.lease)


class Pairs(Sequence[KeyValue]):
    """The keys of a range, in the order of the keys, all as of ``revision``."""

    __slots__ = ("_pairs", "revision", "total")

    def __init__(self, pairs: Sequence[KeyValue], revision: int, total: int) -> None:
        self._pairs = pairs
        self.revision = revision
        """A watch from the next revision on tells of every change since."""
        self.total = total
        """How many keys the range has, without a limit."""

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[KeyValue]:
        return iter(self._pairs)

    @overload
    def __getitem__(self, index: int) -> KeyValue: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[KeyValue]: ...
    def __getitem__(self, index: int | slice) -> KeyValue | Sequence[KeyValue]:
        return self._pairs[index]

    def __repr__(self) -> str:
        return f"Pairs({list(self._pairs)!r}, revision={self.revision}, total={self.total})"

    @property
    def more(self) -> bool:
        """Whether the limit cut some off."""
        return len(self._pairs) < self.total


class PutDone(NamedTuple):
    """A put of a transaction."""

    revision: int


class Deleted(NamedTuple):
    """So many keys are gone; 0: there was none, and the revision is the present one."""

    deleted: int
    revision: int


class TxnDone(NamedTuple):
    """``responses`` has one for each operation of the branch that was taken, in their order: ``PutDone``, ``Pairs``,
    ``Deleted`` or ``TxnDone``."""

    succeeded: bool
    """Whether all comparisons held, and the operations of ``success`` were carried out."""
    revision: int
    responses: tuple[TxnResponse, ...] = ()


TxnResponse = PutDone | Pairs | Deleted | TxnDone


class WatchEvent(NamedTuple):
    """One change of one key. Of a deletion, ``pair`` has the key and the ``mod_revision`` of the deletion alone."""

    pair: KeyValue
    is_delete: bool
    before: KeyValue | None = None
    """What the key was before, if the watch was told to bring it, it was there, and is not compacted."""

    @property
    def key(self) -> bytes:
        return self.pair.key

    @property
    def value(self) -> bytes:
        return self.pair.value

    @property
    def revision(self) -> int:
        return self.pair.mod_revision

    @property
    def is_create(self) -> bool:
        """Whether the key was not there before."""
        return not self.is_delete and self.pair.create_revision == self.pair.mod_revision


@dataclass(frozen=True, slots=True)
class WatchBatch:
    """Changes of one revision or several, whole revisions only, in their order. Iterating over it gives its events."""

    events: tuple[WatchEvent, ...]
    revision: int
    """Everything up to here was told: a watch that begins at the next one goes on without a gap or a double."""

    def __iter__(self) -> Iterator[WatchEvent]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)


class LeaseTimes(NamedTuple):
    """In whole seconds, by the leader's clock."""

    id: int
    granted_s: int
    remaining_s: int
    keys: tuple[bytes, ...] = ()


class StoreStatus(NamedTuple):
    """The store as one node has it."""

    revision: int
    compact_revision: int
    """The first revision that can be read; 0: all can."""
    keys: int
    size_bytes: int
    leases: int
    watches: int
    """Of the node that was asked."""
    hash: int
    """Of all up to the revision. Nodes that are compacted alike have the same."""

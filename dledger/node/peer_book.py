"""A node's durable memory of its peers, group by group, and its reasons to doubt one.

A vote or an acknowledgement is a promise that one disk made in one group. A peer is **in doubt** in a group while its
word about its disk does not fit the group's memory. It has another disk, or an older state of the known one, or a disk
that lost acknowledged frames. The members in the group's log have the last word: they end the doubt about a disk that
they admit. Nothing known, forgotten or admitted in one group changes another group's record of the same peer.

All groups share one file, as a peer's restart changes what each of them knows. Most groups know the same of a peer, so
each distinct record is stored once, and a group refers to its records by number.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path

from dledger.common.config import MAX_MEMBERS
from dledger.common.errors import Code, error
from dledger.common.types import Member, NodeId, NodeStart
from dledger.disk.disk import Disk
from dledger.disk.record import READMIT, RecordKind
from dledger.disk.two_slot import SLOT_BYTES, TwoSlotFile
from dledger.v1.storage_pb2 import PeerBookRecord, PeerRecord

MAX_PEERS = MAX_MEMBERS
PEER_BOOK_SLOT_BYTES = 16 * SLOT_BYTES
"""Room for a thousand groups of five members that know much the same of them."""


class PeerBook:
    """The records of all groups of one node. A change counts at once, and is durable when a later ``save`` returns."""

    def __init__(self, payload: bytes, write: Callable[[bytes], Awaitable[None]]) -> None:
        record = PeerBookRecord.FromString(payload)
        self._groups = {
            each.group: GroupPeers(record.peers[number] for number in each.numbers) for each in record.groups
        }
        self._write = write

    @classmethod
    async def open(cls, disk: Disk, data_dir: Path, *, must_exist: bool = False) -> PeerBook:
        """The book of the data directory. Makes one when there is none, unless it ``must_exist``. Raises CORRUPT_LOG,
        DISK_FULL or DISK_ERROR."""
        slots = TwoSlotFile(disk, str(data_dir / "peers"), RecordKind.PEER_BOOK, slot_bytes=PEER_BOOK_SLOT_BYTES)
        if not await slots.load():
            if must_exist:
                raise error(
                    Code.CORRUPT_LOG,
                    f"{data_dir} had a book of its peers, and has none: which of their disks made promises is not "
                    f"known any more; {READMIT}",
                )
            await slots.create(b"")
        return cls(slots.payload, slots.save)

    def of(self, group: str) -> GroupPeers:
        """What ``group`` knows; empty at first."""
        return self._groups.setdefault(group, GroupPeers())

    def forget_group(self, group: str) -> None:
        """The group is gone from this node for good."""
        self._groups.pop(group, None)

    def has_disk(self, node_id: NodeId, node_uuid: bytes) -> bool:
        """Whether any group knows ``node_id`` by that disk."""
        return any(each.disk_of(node_id) == node_uuid for each in self._groups.values())

    async def save(self) -> None:
        """Raises DISK_FULL or DISK_ERROR."""
        book, numbers = PeerBookRecord(), dict[bytes, int]()
        for group, known in sorted(self._groups.items()):
            if not known.records:
                continue
            entry = book.groups.add(group=group)
            for peer in known.records:
                encoded = peer.SerializeToString(deterministic=True)
                if encoded not in numbers:
                    numbers[encoded] = len(numbers)
                    book.peers.append(peer)
                entry.numbers.append(numbers[encoded])
        await self._write(book.SerializeToString(deterministic=True))


class GroupPeers:
    """What one group knows of its peers."""

    def __init__(self, records: Iterable[PeerRecord] = ()) -> None:
        self._peers = {NodeId(peer.node_id): peer for peer in records}

    @property
    def records(self) -> list[PeerRecord]:
        return [self._peers[each] for each in sorted(self._peers)]

    def doubt(self, member: Member, start: NodeStart) -> str | None:
        """Why no quorum may rest on ``member``; ``start`` is its present start by its own word. None: nothing is
        against it."""
        admitted = member.node_uuid
        if admitted and start.node_uuid != admitted:
            return _has_another_disk(member.id, start, admitted)
        if is_before(member, start):
            return _has_an_older_disk(member.id, start, member.admitted_start_count)
        known = self._peers.get(member.id)
        if known is None or _is_admitted_anew(member, known):
            return None
        if known.node_uuid != start.node_uuid:
            return _has_another_disk(member.id, start, known.node_uuid)
        if known.lost_frames:
            return f"{member.id} lost frames that it had acknowledged and that were committed"
        return None if _follows(start, known) else _has_an_older_disk(member.id, start, known.start_count)

    @property
    def node_ids(self) -> frozenset[NodeId]:
        """Of everybody that is known."""
        return frozenset(self._peers)

    def disk_of(self, node_id: NodeId) -> bytes:
        """The uuid of the one that is known; empty: none is."""
        known = self._peers.get(node_id)
        return known.node_uuid if known is not None else b""

    def remember(self, member: Member, start: NodeStart) -> bool:
        """Takes the start that ``doubt`` has just found nothing against. True when the book changed. Raises
        UNEXPECTED_MEMBER when it is full.

        A disk admitted by an uncommitted change replaces the known one once the change is committed (``admit``).
        """
        known = self._peers.get(member.id)
        if known is None:
            if len(self._peers) >= MAX_PEERS:
                raise error(Code.UNEXPECTED_MEMBER, f"a group knows {MAX_PEERS} peers already, and cannot know more")
            return self._put(_record(member, start))
        if _is_admitted_anew(member, known):
            return False
        return self._put(_record(member, start, known))

    def admit(self, member: Member, start: NodeStart | None) -> bool:
        """``member`` is committed: the disk it names is the one to know. ``start`` is what it last said. True when the
        book changed."""
        known = self._peers.get(member.id)
        if not member.node_uuid or (known is not None and not _is_admitted_anew(member, known)):
            return False
        is_present = start is not None and start.node_uuid == member.node_uuid
        if start is None or not is_present or is_before(member, start):
            start = NodeStart(member.node_uuid, member.admitted_start_count, (member.admitted_start_nonce,))
        return self._put(_record(member, start))

    def mark_lost_frames(self, member: Member) -> bool:
        """``member`` lost committed frames that it had acknowledged. True when the book changed."""
        known = self._peers.get(member.id)
        if known is None or known.lost_frames:
            return False
        lost = PeerRecord()
        lost.CopyFrom(known)
        lost.lost_frames = True
        return self._put(lost)

    def has_lost_frames(self, member: Member) -> bool:
        known = self._peers.get(member.id)
        return known is not None and known.lost_frames and not _is_admitted_anew(member, known)

    def keep_only(self, node_ids: Collection[NodeId]) -> bool:
        """Forgets all other peers. If one of them is added again, the change admits it with any disk it has then. True
        when the book changed."""
        gone = self._peers.keys() - set(node_ids)
        for node_id in gone:
            del self._peers[node_id]
        return bool(gone)

    def _put(self, peer: PeerRecord) -> bool:
        node_id = NodeId(peer.node_id)
        is_new = self._peers.get(node_id) != peer
        self._peers[node_id] = peer
        return is_new


def _record(member: Member, start: NodeStart, known: PeerRecord | None = None) -> PeerRecord:
    return PeerRecord(
        node_id=member.id,
        node_uuid=start.node_uuid,
        start_count=start.start_count,
        start_nonce=start.start_nonces[-1],
        admitted_uuid=member.node_uuid if known is None else known.admitted_uuid,
        admitted_start_count=member.admitted_start_count if known is None else known.admitted_start_count,
        admitted_start_nonce=member.admitted_start_nonce if known is None else known.admitted_start_nonce,
    )


def _is_admitted_anew(member: Member, known: PeerRecord) -> bool:
    """Whether the members speak of another admission than the one that ``known`` rests on. A disk that they merely name
    (start 0) was not admitted: it ends no doubt."""
    admission = (member.node_uuid, member.admitted_start_count, member.admitted_start_nonce)
    base = (known.admitted_uuid, known.admitted_start_count, known.admitted_start_nonce)
    return member.admitted_start_count > 0 and admission != base


def is_before(member: Member, start: NodeStart) -> bool:
    """Whether ``start`` is of an older state of the disk than the one that the members admit, as far as it tells."""
    nonce = start.nonce_of(member.admitted_start_count)
    is_another = nonce is not None and member.admitted_start_nonce not in {0, nonce}
    return start.start_count < member.admitted_start_count or is_another


def _follows(start: NodeStart, known: PeerRecord) -> bool:
    """Whether ``start`` is the one known, or has it behind it. An older state of the disk, started often enough, has
    the higher count in the end. But it never has the nonce drawn in the meantime."""
    is_later = start.start_count >= known.start_count
    return is_later and (not known.start_nonce or start.nonce_of(known.start_count) == known.start_nonce)


def _has_another_disk(node_id: NodeId, start: NodeStart, expected: bytes) -> str:
    return f"{node_id} has node uuid {start.node_uuid.hex()}, not {expected.hex()}: its disk is another one"


def _has_an_older_disk(node_id: NodeId, start: NodeStart, expected: int) -> str:
    return (
        f"{node_id} says it is at start {start.start_count}, which does not follow from start {expected}, where it was "
        "before: its disk is a copy, or was restored from an older state"
    )

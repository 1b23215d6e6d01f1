"""The owner of a data directory, the line of starts behind it, and the groups in it.

The first start mints a uuid, and every start durably raises a counter and draws a nonce before it speaks with anyone.
Peers remember all three (peer_book.py), and the nonces of the last starts are kept and told. A node's disk may be
wiped, copied, or restored from an old backup. However often it restarts then, it is not taken for the node that made
promises.
"""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

from dledger.common.errors import Code, error
from dledger.common.types import DEFAULT_GROUP, MAX_START_NONCES, NodeId, NodeStart
from dledger.disk.disk import FULL, Disk, make_directories
from dledger.disk.record import READMIT, RecordKind
from dledger.disk.syncer import Handle
from dledger.disk.two_slot import SLOT_BYTES, TwoSlotFile
from dledger.v1.storage_pb2 import IdentityRecord

_PID_BYTES = 20
_FAILED = {errno.EIO: Code.DISK_ERROR, **dict.fromkeys(FULL, Code.DISK_FULL)}
"""Everything else is about the directory that was chosen."""
IDENTITY_SLOT_BYTES = 4 * SLOT_BYTES
"""Room for the names of some five hundred groups, removed ones among them."""


class Identity:
    """This start of this node. Holds the data directory's lock until ``close``."""

    def __init__(
        self,
        disk: Disk,
        lock: Handle,
        *,
        data_dir: Path,
        node_id: NodeId,
        slots: TwoSlotFile,
        record: IdentityRecord,
        random: Random,
    ) -> None:
        self._disk = disk
        self._lock: Handle | None = lock
        self._data_dir = data_dir
        self.node_id = node_id
        self._slots = slots
        self._record = record
        self._random = random

    @property
    def start(self) -> NodeStart:
        """The last one that spoke with anyone: this one, behind ``begin_start``."""
        return NodeStart(self._record.node_uuid, self._record.start_count, tuple(self._record.start_nonces))

    async def begin_start(self) -> None:
        """Makes this a new start, durably, before the node speaks with anyone. A start that ends before this made no
        promise, and does not count. A node may fail to start again and again, for a bad file or a taken port. It does
        not use up the nonces that prove its past. Raises DISK_FULL or DISK_ERROR."""
        self._record.start_count += 1
        self._record.start_nonces.append(self._random.getrandbits(64))
        del self._record.start_nonces[:-MAX_START_NONCES]
        await self._save()

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups with a record, a hard state and a log made here, by this start or an earlier one. If one of those is
        missing now, it was lost: a node that began anew would vote against its own promises."""
        return tuple(self._record.groups)

    @property
    def removed_groups(self) -> tuple[str, ...]:
        """Removed for good: none of them is opened again."""
        return tuple(self._record.removed_groups)

    @property
    def dropped_groups(self) -> tuple[str, ...]:
        """This node gave up their files, as it was no member any more: it takes part in founding none of them."""
        return tuple(self._record.dropped_groups)

    async def keep_group(self, group: str) -> None:
        """The record, the hard state and the log of ``group`` are durable; so is this, when it returns. Comes before
        the node speaks in the group. Raises DISK_FULL or DISK_ERROR."""
        if group not in self._record.groups:
            self._record.groups.append(group)
        await self._save()  # an earlier one may have failed

    async def remove_group(self, group: str) -> None:
        """``group`` was removed for good; durable when it returns, and its files may go then. Raises DISK_FULL or
        DISK_ERROR."""
        for names in (self._record.groups, self._record.dropped_groups):
            if group in names:
                names.remove(group)
        if group not in self._record.removed_groups:
            self._record.removed_groups.append(group)
        await self._save()

    async def drop_group(self, group: str) -> None:
        """The node is no member of ``group`` any more: durable when it returns, and its files may go then. Raises
        DISK_FULL or DISK_ERROR."""
        if group in self._record.groups:
            self._record.groups.remove(group)
        if group not in self._record.dropped_groups:
            self._record.dropped_groups.append(group)
        await self._save()

    async def _save(self) -> None:
        await self._slots.save(self._record.SerializeToString(deterministic=True))

    async def close(self) -> None:
        """Lets another process have the directory. Safe to call again."""
        if self._lock is not None:
            self._disk.close(self._lock)
            self._lock = None


async def open_identity(disk: Disk, data_dir: Path, node_id: NodeId, random: Random) -> Identity:
    """Takes the data directory for this process. ``Identity.begin_start`` comes before it speaks with anyone.

    Raises CONFIG_ERROR when the directory is in use, belongs to another node or cannot be written. Raises CORRUPT_LOG
    when both copies of the identity are bad, or it is missing beside a log. Raises UNSUPPORTED_VERSION for a directory
    of the first format, DISK_FULL or DISK_ERROR when the disk fails.
    """
    try:
        make_directories(disk, data_dir)
        lock = disk.open(str(data_dir / "LOCK"), create=True)
    except OSError as reason:
        code = _FAILED.get(reason.errno or 0, Code.CONFIG_ERROR)
        raise error(code, f"the data directory {data_dir} cannot be used: {reason.strerror}") from reason
    try:
        _take(disk, lock, data_dir)
        slots = TwoSlotFile(disk, str(data_dir / "identity"), RecordKind.IDENTITY, slot_bytes=IDENTITY_SLOT_BYTES)
        record = await _opened(disk, slots, data_dir, node_id, random)
    except BaseException:
        disk.close(lock)
        raise
    return Identity(disk, lock, data_dir=data_dir, node_id=node_id, slots=slots, record=record, random=random)


def _take(disk: Disk, lock: Handle, data_dir: Path) -> None:
    if not disk.lock(lock):
        pid = disk.pread(lock, _PID_BYTES, 0).decode(errors="replace").strip()
        holder = f"process {pid}" if pid.isdigit() else "another process"
        raise error(
            Code.CONFIG_ERROR, f"the data directory {data_dir} is in use by {holder}: stop it, or use another --data"
        )
    try:
        disk.pwritev(lock, [f"{disk.process_id():<{_PID_BYTES}}".encode()], 0)
    except OSError as reason:
        if reason.errno not in FULL:
            raise error(Code.DISK_ERROR, f"{data_dir} cannot be written: {reason.strerror}") from reason
        # The pid in the lock file is a courtesy: a full disk must not keep a node from serving what it has.


async def _opened(disk: Disk, slots: TwoSlotFile, data_dir: Path, node_id: NodeId, random: Random) -> IdentityRecord:
    if not await slots.load():
        if disk.exists(str(data_dir / "groups")):
            raise error(
                Code.CORRUPT_LOG,
                f"{data_dir} has groups but no identity: it is not whole; {READMIT}",
            )
        record = IdentityRecord(node_id=node_id, node_uuid=random.randbytes(16))
        await slots.create(record.SerializeToString(deterministic=True))
        return record
    record = IdentityRecord.FromString(slots.payload)
    if record.node_id != node_id:
        raise error(
            Code.CONFIG_ERROR,
            f"the data directory {data_dir} belongs to node {record.node_id!r}, not {node_id!r}: check --id and --data",
        )
    if record.groups_of_first_format:
        raise error(
            Code.UNSUPPORTED_VERSION,
            f"{data_dir} was written by a dledger that had one group a node: {copied_by_hand(data_dir, DEFAULT_GROUP)}",
        )
    return record


def copied_by_hand(data_dir: Path, group: str) -> str:
    """What to do with a directory that this program cannot open. Its log can still be read where it lies."""
    name = "" if group == DEFAULT_GROUP else f" --group {group}"
    return (
        "start a new cluster in empty directories, and copy the records there: "
        f"dledger log dump {data_dir} --records{name} | dledger append (see 'An old data directory' in docs/admin.md)"
    )

"""Who a data directory belongs to, and which line of starts it has behind it.

The first start mints a uuid, and every start durably raises a counter and draws a nonce before it speaks with anyone.
Peers remember all three (peer_book.py), and the nonces of the last starts are kept and told: a node whose disk was
wiped, copied, or restored from an old backup is not taken for the one that made promises, however often it restarts.
"""

from __future__ import annotations

import errno
from collections.abc import Coroutine
from pathlib import Path
from random import Random
from typing import Any

from dledger.common.errors import Code, error
from dledger.common.types import MAX_START_NONCES, Durability, LogPoint, NodeId, NodeStart, Position, Term
from dledger.disk.disk import FULL, Disk, make_directories
from dledger.disk.record import READMIT, RecordKind
from dledger.disk.syncer import Handle
from dledger.disk.two_slot import TwoSlotFile
from dledger.v1.storage_pb2 import IdentityRecord, LogPointRecord

_PID_BYTES = 20
_FAILED = {errno.EIO: Code.DISK_ERROR, **dict.fromkeys(FULL, Code.DISK_FULL)}
"""Everything else is about the directory that was chosen."""


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
        durability: Durability,
        tail_is_unknown: bool,
    ) -> None:
        self._disk = disk
        self._lock: Handle | None = lock
        self._data_dir = data_dir
        self.node_id = node_id
        self._slots = slots
        self._record = record
        self._random = random
        self._durability = durability
        self.tail_is_unknown = tail_is_unknown
        """The end of a log was cut, by this start or an earlier one, and the others were not asked what was there.
        Durable before any log is opened, until ``begin_start`` says how it was; true from there until it is known."""

    @property
    def start(self) -> NodeStart:
        """The last one that spoke with anyone: this one, behind ``begin_start``."""
        return NodeStart(self._record.node_uuid, self._record.start_count, tuple(self._record.start_nonces))

    async def begin_start(self) -> None:
        """Makes this a new start, durably, before the node speaks with anyone. One that ends before it does made no
        promise, and is none: a node that fails to start again and again, as a file is bad or its port taken, does not
        use up the nonces that prove where it comes from. Raises DISK_FULL or DISK_ERROR."""
        self._record.start_count += 1
        self._record.start_nonces.append(self._random.getrandbits(64))
        del self._record.start_nonces[:-MAX_START_NONCES]
        self._record.tail_is_unknown = self.tail_is_unknown
        await self._save()

    def log_is_synced(self) -> None:
        """All that the log holds is durable, whatever it was written under: from now on it is as this start is
        configured. Durable with what is saved next."""
        self._record.durability = self._durability.value

    @property
    def owes_catch_up(self) -> bool:
        """This node may have lost what it acknowledged, and no leader has caught it up since. Survives restarts."""
        return self._record.owes_catch_up

    @property
    def debt_is_new(self) -> bool:
        """The machine lost its memory since a start that was without fsync: what was written and not synced is gone,
        unless that start ended in order, and nobody has looked yet whether it did. Survives restarts."""
        return self._record.debt_is_new

    async def owe_catch_up(self) -> None:
        """From now on, whatever the log says of how it was closed; durable. Raises DISK_FULL or DISK_ERROR."""
        self._record.owes_catch_up, self._record.debt_is_new = True, False
        await self._save()

    def settle_debt(self) -> Coroutine[Any, Any, None]:
        """It has been caught up, or turned out to have lost nothing: from now on, and durable when what is returned has
        been awaited, unless it owes anew by then. That raises DISK_FULL or DISK_ERROR."""
        self._record.owes_catch_up = self._record.debt_is_new = False
        return self._save()

    @property
    def cut_behind(self) -> LogPoint | None:
        """Where the log ended when an earlier start cut it first; None where that one did not come to say so."""
        found = self._record.cut_behind
        is_known = self._record.HasField("cut_behind")
        return LogPoint(Position(found.position), Term(found.term), found.chain) if is_known else None

    async def lose_tail(self, cut_behind: LogPoint) -> None:
        """The end of the log was cut behind that point, and nobody was asked yet what was there; durable. Raises
        DISK_FULL or DISK_ERROR."""
        if self._record.tail_is_unknown and self.cut_behind == cut_behind:
            return
        self.tail_is_unknown = self._record.tail_is_unknown = True
        position, term, chain = cut_behind
        self._record.cut_behind.CopyFrom(LogPointRecord(position=position, term=term, chain=chain))
        await self._save()

    async def tail_is_known(self) -> None:
        """What the others have behind the end of the log that was cut is here; durable. Raises DISK_FULL or
        DISK_ERROR."""
        self.tail_is_unknown = self._record.tail_is_unknown = False
        self._record.ClearField("cut_behind")
        await self._save()

    def has_group(self, group: str) -> bool:
        """Whether the hard state and the log of ``group`` were made here, by this start or an earlier one: where one of
        them is missing now, it was lost, and a node that began anew would vote against its own promises."""
        return group in self._record.groups

    def check_group(self, group: str) -> None:
        """What is owed, and what a log was written under, is kept for one group: another one's log says nothing of it.
        Raises CONFIG_ERROR when the directory belongs to another."""
        others = [each for each in self._record.groups if each != group]
        if others:
            raise error(
                Code.CONFIG_ERROR,
                f"{self._data_dir} belongs to group {others[0]!r}, not {group!r}: "
                "fix --group, or use another directory",
            )

    async def keep_group(self, group: str) -> None:
        """The hard state and the log of ``group`` are durable; so is this, when it returns. Before the node speaks with
        anyone. Raises DISK_FULL or DISK_ERROR."""
        if group not in self._record.groups:
            self._record.groups.append(group)
            await self._save()

    async def _save(self) -> None:
        await self._slots.save(self._record.SerializeToString(deterministic=True))

    async def close(self) -> None:
        """Lets another process have the directory. Safe to call again."""
        if self._lock is not None:
            self._disk.close(self._lock)
            self._lock = None


async def open_identity(
    disk: Disk, data_dir: Path, node_id: NodeId, random: Random, durability: Durability = Durability.FSYNC
) -> Identity:
    """Takes the data directory for this process. ``Identity.begin_start`` comes before it speaks with anyone.

    Raises CONFIG_ERROR when the directory is in use, belongs to another node or is none to be written to, CORRUPT_LOG
    when both copies of the identity are bad or it is missing beside a log, DISK_FULL or DISK_ERROR when the disk fails.
    """
    try:
        make_directories(disk, data_dir)
        lock = disk.open(str(data_dir / "LOCK"), create=True)
    except OSError as reason:
        code = _FAILED.get(reason.errno or 0, Code.CONFIG_ERROR)
        raise error(code, f"the data directory {data_dir} cannot be used: {reason.strerror}") from reason
    try:
        _take(disk, lock, data_dir)
        slots = TwoSlotFile(disk, str(data_dir / "identity"), RecordKind.IDENTITY)
        record, tail_is_unknown = await _opened(disk, slots, data_dir, node_id, random, durability=durability)
    except BaseException:
        disk.close(lock)
        raise
    return Identity(
        disk,
        lock,
        data_dir=data_dir,
        node_id=node_id,
        slots=slots,
        record=record,
        random=random,
        durability=durability,
        tail_is_unknown=tail_is_unknown,
    )


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
        # Who holds the lock is a courtesy: a full disk must not keep a node from serving what it has.


async def _opened(
    disk: Disk, slots: TwoSlotFile, data_dir: Path, node_id: NodeId, random: Random, *, durability: Durability
) -> tuple[IdentityRecord, bool]:
    """The identity, and whether the end of a log was cut by an earlier start that has not asked what was there."""
    if not await slots.load():
        if disk.exists(str(data_dir / "groups")):
            raise error(
                Code.CORRUPT_LOG,
                f"{data_dir} has groups but no identity: it is not whole; {READMIT}",
            )
        record = IdentityRecord(
            node_id=node_id,
            node_uuid=random.randbytes(16),
            boot_id=disk.boot_id(),
            durability=durability.value,
        )
        await slots.create(record.SerializeToString(deterministic=True))
        return record, False
    record = IdentityRecord.FromString(slots.payload)
    if record.node_id != node_id:
        raise error(
            Code.CONFIG_ERROR,
            f"the data directory {data_dir} belongs to node {record.node_id!r}, not {node_id!r}: check --id and --data",
        )
    boot_id = disk.boot_id()
    lost_memory = not boot_id or boot_id != record.boot_id
    # Judged by what the data was written under, and recorded before the boot id that shows it is overwritten.
    was_synced = record.durability == Durability.FSYNC.value
    if lost_memory and not was_synced and not record.owes_catch_up:
        record.owes_catch_up = record.debt_is_new = True
    record.boot_id = boot_id
    if was_synced:  # else it is what was written before, until the log is synced
        record.durability = durability.value
    tail_is_unknown = record.tail_is_unknown
    record.tail_is_unknown = True  # a log that is opened now may be cut, and this start end before it says so
    await slots.save(record.SerializeToString(deterministic=True))
    return record, tail_is_unknown

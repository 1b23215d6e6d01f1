"""What one group on one node may have lost, kept durably beside its log.

A debt belongs to one group: what another group's log says neither causes it nor settles it. Every debt found by a start
is durable before the node speaks in that group (``begin_start``).
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from dledger.common.errors import Code, error
from dledger.common.types import Durability, LogPoint, Member, Position, Term
from dledger.disk.disk import Disk, make_directories
from dledger.disk.record import READMIT, RecordKind
from dledger.disk.two_slot import SLOT_BYTES, TwoSlotFile, unwritable
from dledger.log.frame.control import member_record, members_of
from dledger.v1.storage_pb2 import GroupRecord as GroupPayload
from dledger.v1.storage_pb2 import LogPointRecord

GROUP_RECORD_NAME = "group"
GROUP_RECORD_SLOT_BYTES = 2 * SLOT_BYTES
"""Room for some twenty founders, however long their addresses are."""


class GroupRecord:
    """The debts of one group on one node, and the members with which its log begins."""

    def __init__(
        self, slots: TwoSlotFile, payload: GroupPayload, durability: Durability, *, tail_is_unknown: bool
    ) -> None:
        self._slots = slots
        self._payload = payload
        self._durability = durability
        self.tail_is_unknown = tail_is_unknown
        """This start or an earlier one cut the end of the log, and the other nodes were not asked yet what was there.
        On the disk it is set before the log is opened, as a crash may follow. ``begin_start`` stores what was found."""

    @classmethod
    async def open(
        cls,
        disk: Disk,
        directory: Path,
        group: str,
        durability: Durability,
        *,
        founders: Sequence[Member] = (),
        must_exist: bool = False,
    ) -> GroupRecord:
        """The record in ``directory``. Makes one with ``founders`` when there is none. Comes before the hard state and
        the log. Raises CORRUPT_LOG when both copies are bad. Raises it too when there is no record although it
        ``must_exist``, or something of the group is there. Raises DISK_FULL or DISK_ERROR when it cannot be read or
        made."""
        slots = TwoSlotFile(
            disk, str(directory / GROUP_RECORD_NAME), RecordKind.GROUP, slot_bytes=GROUP_RECORD_SLOT_BYTES
        )
        if await slots.load():
            return await cls._opened(disk, slots, durability)
        if must_exist or (disk.exists(str(directory)) and _has_more(disk.listdir(str(directory)))):
            raise error(
                Code.CORRUPT_LOG,
                f"{directory} had a group record, and has none: what group {group!r} may have lost is not known any "
                f"more; {READMIT}",
            )
        try:
            make_directories(disk, directory)
        except OSError as reason:
            raise unwritable(str(directory), reason) from reason
        payload = GroupPayload(
            group=group, boot_id=disk.boot_id(), durability=durability.value, founders=map(member_record, founders)
        )
        await slots.create(payload.SerializeToString(deterministic=True))
        return cls(slots, payload, durability, tail_is_unknown=False)

    @classmethod
    async def _opened(cls, disk: Disk, slots: TwoSlotFile, durability: Durability) -> GroupRecord:
        payload = GroupPayload.FromString(slots.payload)
        boot_id = disk.boot_id()
        lost_memory = not boot_id or boot_id != payload.boot_id
        # Judged by what the data was written under, and recorded before the boot id that shows it is overwritten.
        was_synced = payload.durability == Durability.FSYNC.value
        if lost_memory and not was_synced and not payload.owes_catch_up:
            payload.owes_catch_up = payload.debt_is_new = True
        payload.boot_id = boot_id
        if was_synced:  # else it is what was written before, until the log is synced
            payload.durability = durability.value
        tail_is_unknown = payload.tail_is_unknown
        payload.tail_is_unknown = True  # a log that is opened now may be cut, and this start end before it says so
        await slots.save(payload.SerializeToString(deterministic=True))
        return cls(slots, payload, durability, tail_is_unknown=tail_is_unknown)

    @property
    def founders(self) -> tuple[Member, ...]:
        """The members that an empty log begins with, as given when the record was made."""
        return members_of(self._payload.founders)

    async def begin_start(self) -> None:
        """Before the node speaks in the group: what this start found is durable. Raises DISK_FULL or DISK_ERROR."""
        self._payload.tail_is_unknown = self.tail_is_unknown
        await self._save()

    def log_is_synced(self) -> None:
        """All frames of the log are durable now, with whichever durability they were written. So the record may name
        the durability of this start. It becomes durable with the next save."""
        self._payload.durability = self._durability.value

    @property
    def owes_catch_up(self) -> bool:
        """This node may have lost what it acknowledged in the group, and no leader has caught it up since. Survives
        restarts."""
        return self._payload.owes_catch_up

    @property
    def debt_is_new(self) -> bool:
        """The machine lost power, or was restarted, since a start without fsync, and nobody has checked yet whether
        that start ended in order. If it did not, frames that were written and not synced are gone. Survives
        restarts."""
        return self._payload.debt_is_new

    async def owe_catch_up(self) -> None:
        """The debt counts from now on, even if the log says that it was closed in order; durable. Raises DISK_FULL or
        DISK_ERROR."""
        self._payload.owes_catch_up, self._payload.debt_is_new = True, False
        await self._save()

    def settle_debt(self) -> Coroutine[Any, Any, None]:
        """The debt is over: a leader has caught the node up, or it turned out to have lost nothing. Counts at once, and
        is durable when the returned coroutine has been awaited, unless a new debt arose by then. The coroutine raises
        DISK_FULL or DISK_ERROR."""
        self._payload.owes_catch_up = self._payload.debt_is_new = False
        return self._save()

    @property
    def cut_behind(self) -> LogPoint | None:
        """The end of the log when an earlier start cut it first; None if that start did not come to note it."""
        found = self._payload.cut_behind
        is_known = self._payload.HasField("cut_behind")
        return LogPoint(Position(found.position), Term(found.term), found.chain) if is_known else None

    async def lose_tail(self, cut_behind: LogPoint) -> None:
        """The end of the log was cut behind that point, and no node was asked yet for the frames there; durable. Raises
        DISK_FULL or DISK_ERROR."""
        if self._payload.tail_is_unknown and self.cut_behind == cut_behind:
            return
        self.tail_is_unknown = self._payload.tail_is_unknown = True
        position, term, chain = cut_behind
        self._payload.cut_behind.CopyFrom(LogPointRecord(position=position, term=term, chain=chain))
        await self._save()

    async def tail_is_known(self) -> None:
        """The others' frames behind the end of the cut log are here; durable. Raises DISK_FULL or DISK_ERROR."""
        self.tail_is_unknown = self._payload.tail_is_unknown = False
        self._payload.ClearField("cut_behind")
        await self._save()

    async def _save(self) -> None:
        await self._slots.save(self._payload.SerializeToString(deterministic=True))


def _has_more(names: Sequence[str]) -> bool:
    """Whether more of a group is there than an unfinished first start of it may leave: its record comes first."""
    return any(not name.endswith(".tmp") for name in names)

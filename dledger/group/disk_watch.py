"""DiskWatch: one group's answer to its file system's room (disk/room.py), and to a disk that does not come back.

============  ======================================  ==================================================================
state         what                                    what follows
============  ======================================  ==================================================================
ok
low           below ``disk_warn_free_bytes``          a warning
full          below ``Limits.refuse_free_bytes``,     appends are refused with DISK_FULL; reads, elections, trims go on
              or the device said so
hung          an fdatasync under way for longer       a leader steps down, if the others' disks do their work; a node
              than ``disk_timeout_ms``                does not stand; it follows, for what it is sent, and acknowledges
                                                      nothing until the disk comes back
============  ======================================  ==================================================================

Each is left by itself when its cause is gone, and each change is one line in the log.

An fdatasync waits off the event loop. So a node with a disk that hangs there still speaks, and must give up its
leadership by itself. Disks that share a device stand still together when it is asked for too much. Then an election
helps nobody. The leader stays, and goes on where it was as soon as they come back. A **pwritev** that hangs stops the
event loop, the whole process: it sends no heartbeats, and its peers elect another within an election timeout. An
fdatasync that **fails** is the log's to report, and ends the process.
"""

from __future__ import annotations

import asyncio
import logging

from dledger.common.config import MIB
from dledger.common.errors import Code, error
from dledger.common.types import DiskState
from dledger.disk.room import RoomWatch
from dledger.group.context import GroupContext

logger = logging.getLogger(__name__)


class DiskWatch:
    """``room`` is shared by all groups on the file system. The group that finds a proof of room to be due makes it."""

    def __init__(self, context: GroupContext, room: RoomWatch) -> None:
        self._context = context
        self._room = room
        self._log = context.log
        self._timeout_s = context.config.timings.disk_timeout_ms / 1000
        limits = context.config.limits
        self._refuse_free_bytes = limits.refuse_free_bytes(context.group)
        self._refuse_setting = limits.refuse_setting(context.group)
        self._is_hung = False
        self._told = DiskState.OK
        self._may_lead = True
        """As the core was last told."""
        self._proof: asyncio.Task[None] | None = None

    @property
    def free_bytes(self) -> int:
        """At the last look."""
        return self._room.free_bytes

    @property
    def state(self) -> DiskState:
        return DiskState.HUNG if self._is_hung else self._room.state_below(self._refuse_free_bytes)

    def look(self) -> bool:
        """Called every heartbeat interval. True: something changed, and ``check`` is to be called."""
        self._is_hung = self._log.sync_age_s > self._timeout_s
        if not self._is_hung and self._room.look():
            self._begin_proof()
        self._context.metrics.disk_free_bytes = self._room.free_bytes
        return self._is_hung or not self._may_lead or self.state is not self._told

    def check(self) -> None:
        if self.state is not self._told:
            self._tell()
        self._judge_may_lead()

    def _judge_may_lead(self) -> None:
        core, now_ms, before = self._context.core, self._context.now_ms(), self._may_lead
        leadership = core.leadership
        self._may_lead = not self._is_hung or (leadership is not None and not leadership.others_go_on(now_ms))
        if self._may_lead is not before:
            core.set_may_lead(self._may_lead, now_ms)

    def check_room(self) -> None:
        """Raises DISK_FULL while appends are refused."""
        if self._room.is_refused:
            raise error(
                Code.DISK_FULL,
                "the leader's disk has no room, by its own word: make some on it, or trim the log",
                free_bytes=self.free_bytes,
            )
        if self.state is DiskState.FULL:
            raise error(
                Code.DISK_FULL,
                f"the leader's disk has {self.free_bytes / MIB:,.0f} MiB left, and takes no appends below "
                f"{self._refuse_free_bytes / MIB:,.0f} MiB ({self._refuse_setting}): make room on it, or trim the log",
                free_bytes=self.free_bytes,
            )

    def refused(self) -> None:
        """The device had no room for what was to be written."""
        self._room.refused()
        if self.state is not self._told:
            self._tell()

    async def settle(self) -> None:
        """Returns when nothing is under way on the disk."""
        if self._proof is not None:
            await asyncio.wait([self._proof])

    def _begin_proof(self) -> None:
        name = f"disk-room-{self._context.group}"
        self._proof = asyncio.get_running_loop().create_task(self._room.prove(), name=name)
        self._proof.add_done_callback(self._proved)

    def _proved(self, task: asyncio.Task[None]) -> None:
        self._proof = None
        self._context.watch_task(task)
        self._context.guard(self.check)

    def _tell(self) -> None:
        before, state = self._told, self.state
        self._told = self._context.metrics.disk_state = self._context.core.disk = state
        logger.log(
            _LEVELS[state],
            "the disk's state changed",
            extra={
                "group": self._context.group,
                "state": state.word,
                "before": before.word,
                "free_bytes": self.free_bytes,
            },
        )


_LEVELS = {
    DiskState.OK: logging.INFO,
    DiskState.LOW: logging.WARNING,
    DiskState.FULL: logging.ERROR,
    DiskState.HUNG: logging.ERROR,
}

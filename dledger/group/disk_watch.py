"""DiskWatch: free space, and a disk that does not come back.

============  ======================================  ==================================================================
state         what                                    what follows
============  ======================================  ==================================================================
ok
low           below ``disk_warn_free_bytes``          a warning
full          below ``disk_refuse_free_bytes``,       appends are refused with DISK_FULL; reads, elections, trims go on
              or the device said so
hung          an fdatasync under way for longer       a leader steps down, if the others' disks do their work; a node
              than ``disk_timeout_ms``                does not stand; it follows, for what it is sent, and acknowledges
                                                      nothing until the disk comes back
============  ======================================  ==================================================================

Each is left by itself when its cause is gone, and each change is one line in the log. What the device said (ENOSPC, a
quota) is a fact, whatever the watermarks say: it stands until room is proven by taking some (``Log.prove_room``).

An fdatasync waits off the event loop, so a node whose disk hangs there still speaks, and must give up its leadership
by itself. Where the others' disks stand still as well, as those that share a device do when it is asked for too much,
an election helps nobody: the leader stays, and goes on where it was as soon as they come back. A **pwritev** that hangs
stops the event loop, the whole process: it sends no heartbeats, and its peers elect another within an election timeout.
An fdatasync that **fails** is the log's to report, and ends the process.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from dledger.common.config import MIB
from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import DiskState
from dledger.group.context import GroupContext

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S = 1.0
"""How often the free space is asked for."""


class DiskWatch:
    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._log = context.log
        self._limits = context.config.limits
        self._timeout_ms = context.config.timings.disk_timeout_ms
        self._next_look_s = 0.0
        self._space = DiskState.OK
        self._is_hung = False
        self._may_lead = True
        """As the core was last told."""
        self._is_refused = False
        """The device had no room, and has not been seen to have any since."""
        self._is_proven = False
        self._proof: asyncio.Task[None] | None = None
        self.free_bytes = 0
        """At the last look."""

    @property
    def state(self) -> DiskState:
        if self._is_hung:
            return DiskState.HUNG
        return DiskState.FULL if self._is_refused else self._space

    def check(self) -> None:
        """Called every heartbeat interval."""
        before = self.state
        self._is_hung = self._log.sync_age_s * 1000 > self._timeout_ms
        if not self._is_hung and self._context.now_s() >= self._next_look_s:
            self._look()
            self._begin_proof()
        if self.state is not before:
            self._tell(before)
        self._judge_may_lead()

    def _judge_may_lead(self) -> None:
        core, now_ms, before = self._context.core, self._context.now_ms(), self._may_lead
        leadership = core.leadership
        self._may_lead = not self._is_hung or (leadership is not None and not leadership.others_go_on(now_ms))
        if self._may_lead is not before:
            core.set_may_lead(self._may_lead, now_ms)

    def check_room(self) -> None:
        """Raises DISK_FULL while appends are refused."""
        if self._is_refused:
            raise error(
                Code.DISK_FULL,
                "the leader's disk has no room, by its own word: make some on it, or trim the log",
                free_bytes=self.free_bytes,
            )
        if self._space is DiskState.FULL:
            raise error(
                Code.DISK_FULL,
                f"the leader's disk has {self.free_bytes // MIB} MiB left: make room on it, or trim the log",
                free_bytes=self.free_bytes,
            )

    def refused(self) -> None:
        """The device had no room for what was to be written."""
        before, self._is_refused = self.state, True
        if self.state is not before:
            self._tell(before)

    async def settle(self) -> None:
        """Returns when nothing is under way on the disk."""
        if self._proof is not None:
            await asyncio.wait([self._proof])

    def _begin_proof(self) -> None:
        """While the device is known to be full, and once at the start, which also makes the reserve."""
        if self._proof is None and (self._is_refused or not self._is_proven):
            name = f"disk-room-{self._context.group}"
            self._proof = asyncio.get_running_loop().create_task(self._prove(), name=name)
            self._proof.add_done_callback(self._proved)

    async def _prove(self) -> None:
        self._is_proven = await self._log.prove_room()
        before, self._is_refused = self.state, not self._is_proven
        if self.state is not before:
            self._context.guard(partial(self._tell, before))

    def _proved(self, task: asyncio.Task[None]) -> None:
        self._proof = None
        self._context.watch_task(task)

    def _look(self) -> None:
        self._next_look_s = self._context.now_s() + LOOK_INTERVAL_S
        try:
            self.free_bytes = self._log.free_bytes()
        except DLedgerError as failure:
            logger.warning("the free space is not known", extra={"group": self._context.group, "why": failure})
            return
        self._context.metrics.disk_free_bytes = self.free_bytes
        self._space = self._judge_space()

    def _judge_space(self) -> DiskState:
        if self.free_bytes < self._limits.disk_refuse_free_bytes:
            return DiskState.FULL
        return DiskState.LOW if self.free_bytes < self._limits.disk_warn_free_bytes else DiskState.OK

    def _tell(self, before: DiskState) -> None:
        state = self.state
        self._context.metrics.disk_state = self._context.core.disk = state
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

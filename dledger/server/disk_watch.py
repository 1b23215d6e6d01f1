"""DiskWatch: free space, and a disk that does not come back.

============  ======================================  ==================================================================
state         what                                    what follows
============  ======================================  ==================================================================
ok
low           below ``disk_warn_free_bytes``          a warning
full          below ``disk_refuse_free_bytes``        appends are refused with DISK_FULL; reads, elections, trims go on
hung          an fdatasync under way for longer       a leader steps down, a node does not stand; it follows, for what
              than ``disk_timeout_ms``                it is sent, and acknowledges nothing until the disk comes back
============  ======================================  ==================================================================

Each is left by itself when its cause is gone, and each change is one line in the log. What the device refuses with
ENOSPC is refused with DISK_FULL too, whatever the watermarks say.

An fdatasync waits off the event loop, so a node whose disk hangs there still speaks, and must give up its leadership
by itself. A **pwritev** that hangs stops the event loop, the whole process: it sends no heartbeats, and its peers elect
another within an election timeout. An fdatasync that **fails** is the log's to report, and ends the process.
"""

from __future__ import annotations

import logging
from enum import Enum

from dledger.config import MIB
from dledger.errors import Code, DLedgerError, error
from dledger.server.context import GroupContext

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S = 1.0
"""How often the free space is asked for."""


class DiskState(Enum):
    """In the order of severity."""

    OK = "ok"
    LOW = "low"
    FULL = "full"
    HUNG = "hung"


class DiskWatch:
    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._log = context.log
        self._limits = context.config.limits
        self._timeout_ms = context.config.timings.disk_timeout_ms
        self._next_look_s = 0.0
        self._space = DiskState.OK
        self._is_hung = False
        self.free_bytes = 0
        """At the last look."""

    @property
    def state(self) -> DiskState:
        return DiskState.HUNG if self._is_hung else self._space

    def check(self) -> None:
        """Called every heartbeat interval."""
        before = self.state
        self._is_hung = self._log.sync_age_s * 1000 > self._timeout_ms
        if not self._is_hung and self._context.now_s() >= self._next_look_s:
            self._look()
        if self.state is not before:
            self._tell(before)

    def check_room(self) -> None:
        """Raises DISK_FULL while appends are refused."""
        if self._space is DiskState.FULL:
            raise error(
                Code.DISK_FULL,
                f"the leader's disk has {self.free_bytes // MIB} MiB left: make room on it, or trim the log",
                free_bytes=self.free_bytes,
            )

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
        self._context.metrics.disk_state = _SEVERITY[state]
        if DiskState.HUNG in (before, state):
            self._context.core.set_may_lead(state is not DiskState.HUNG, self._context.now_ms())
        logger.log(
            _LEVELS[state],
            "the disk's state changed",
            extra={
                "group": self._context.group,
                "state": state.value,
                "before": before.value,
                "free_bytes": self.free_bytes,
            },
        )


_SEVERITY = {state: severity for severity, state in enumerate(DiskState)}
_LEVELS = {
    DiskState.OK: logging.INFO,
    DiskState.LOW: logging.WARNING,
    DiskState.FULL: logging.ERROR,
    DiskState.HUNG: logging.ERROR,
}

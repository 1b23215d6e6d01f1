"""Retention: the log is trimmed from its start, by age, by size or by hand, always through a committed TRIM frame.

::

    leader   policy or request ── a boundary of its own log ── TRIM frame ── committed
                                                                               │
    every node                                                  Log.trim: the log begins there

Ages are measured by a clock that a majority of the voters has reached (``Leadership.agreed_clock_ms``). So one wrong
clock trims nothing, and nothing is trimmed by age while no majority is heard. A leader with a clock ahead stamps its
records at most ten seconds ahead of that clock (``Leadership.stamp_ms``), so they stay that much longer. A leader with
a clock behind stamps them older than they are: under another leader, they go that much sooner.

A boundary lies between two segments, so the segment that is written to, the tail of the log, always stays. Trimmed
frames were committed before the TRIM frame was written.

A group with a state machine is trimmed by one rule alone: up to its last confirmed checkpoint, and never further. The
checkpoint replaces what lies before. A node carries a TRIM out once its own state machine has that checkpoint.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import DiskState, GroupSettings, Position, Role, TrimPoint
from dledger.group.context import GroupContext
from dledger.group.leader.appender import Appender
from dledger.group.leader.clock_watch import ClockWatch
from dledger.group.leader.control_frames import ControlFrames
from dledger.group.leader.settings import Settings
from dledger.log.frame.control import trim_body
from dledger.log.frame.frame import ControlKind
from dledger.log.log_api import Boundary

logger = logging.getLogger(__name__)

POLICY_INTERVAL_S = 1.0
"""How often the leader looks whether anything is too old or too much."""


class Trimmed(NamedTuple):
    """What a trim takes, or would take."""

    first_index: int
    """Of the first record kept."""
    records: int
    size_bytes: int
    """About what is freed on each node."""


class Retention:
    """Carries out committed trims of this node's log, and decides, on a leader, how far to trim."""

    def __init__(self, context: GroupContext, appender: Appender, settings: Settings) -> None:
        self._context = context
        self._log = context.log
        self._frames = ControlFrames(context, appender, ControlKind.TRIM, "trim")
        self._settings = settings
        self._trimming: asyncio.Task[None] | None = None
        self._next_policy_s = 0.0
        self.clocks = ClockWatch(context)

    # Every node ----------------------------------------------------------------------------------------------------

    @property
    def is_due(self) -> bool:
        """Whether a trim was not carried out yet: it is not committed, or what it needs could not be read."""
        state = self._log.state
        return state.trim is not None and state.trim.point.position > state.start.position

    def check(self) -> None:
        """Called now and then: trims what is committed, and has the leader look at the clocks and its policy."""
        self.on_commit()
        now_s = self._context.now_s()
        if now_s >= self._next_policy_s and self._context.role is Role.LEADER:
            self._next_policy_s = now_s + POLICY_INTERVAL_S
            self.clocks.check()
            self._apply_policy()

    def on_commit(self) -> None:
        """The commit position moved, or the node has started: is a trim committed that was not carried out?"""
        state = self._log.state
        to = state.trim
        if to is None or self._trimming is not None or state.trim_position > self._commit_position:
            return
        is_safe = to.first_index <= self._context.machine.trim_limit
        if is_safe and to.point.position > state.start.position:
            self._trimming = asyncio.get_running_loop().create_task(self._trim(to), name=f"trim-{self._context.group}")
            self._trimming.add_done_callback(self._on_trimmed)

    @property
    def _commit_position(self) -> Position:
        return self._context.core.commit_position

    async def _trim(self, to: TrimPoint) -> None:
        logger.info("trimming the log", extra={"group": self._context.group, "first_index": to.first_index})
        await self._log.trim(to)
        self._context.metrics.trims += 1

    def _on_trimmed(self, task: asyncio.Task[None]) -> None:
        self._trimming = None
        self._context.watch_task(task)

    async def settle(self) -> None:
        """Returns when the log is not being trimmed."""
        if self._trimming is not None:
            await asyncio.wait([self._trimming])

    # The leader ----------------------------------------------------------------------------------------------------

    async def trim(self, before_index: int, *, dry_run: bool = False) -> Trimmed:
        """Drops whole segments of records before ``before_index``; returns once that is committed, and done here.

        Raises NOT_LEADER, LEADER_NOT_READY, and the errors of an append. Raises UNSUPPORTED beyond the records replaced
        by a state machine's checkpoint. Raises INDEX_OUT_OF_RANGE beyond the last committed record. Raises DISK_FULL if
        nothing can go for want of room. Raises CHANGE_PENDING while another trim is not committed.
        """
        self._context.admission.check_leader()
        if not self._context.core.is_ready:
            raise self._context.admission.not_ready()
        first_index, commit_index = self._log.state.first_index, self._context.commit_index
        if before_index > commit_index + 1:
            raise error(
                Code.INDEX_OUT_OF_RANGE,
                f"nothing is trimmed before {before_index}: the last committed record is {commit_index}",
                first_index=first_index,
                commit_index=commit_index,
            )
        self._check_state_kept(before_index)
        fitting = [boundary for boundary in self._boundaries() if boundary.trim.first_index <= before_index]
        if not fitting:
            self._check_states_had_room(before_index)
        taken = self._taken(fitting[-1] if fitting else None)
        if fitting and not dry_run:
            await self._frames.append(trim_body(fitting[-1].trim))
            await self._carry_out(fitting[-1].trim)
        return taken

    def _check_state_kept(self, before_index: int) -> None:
        """Raises UNSUPPORTED if the state of the group's state machine would be lost with the records."""
        if before_index > self._context.machine.trim_limit:
            raise error(
                Code.UNSUPPORTED,
                "the group is the log of a state machine: it is trimmed behind its checkpoints, and not by hand",
            )

    def _check_states_had_room(self, before_index: int) -> None:
        """Raises DISK_FULL if a whole segment lies before ``before_index``, and the log cannot begin behind it."""
        spans = self._log.segments()
        is_whole = len(spans) > 1 and spans[0].end_index <= before_index
        if is_whole and self._context.core.disk is DiskState.FULL:
            raise error(
                Code.DISK_FULL,
                "nothing can be trimmed: the small state that the log would begin with had no room on the disk; "
                "make some by other means, or hand the leadership to a node that has it",
            )

    async def _carry_out(self, to: TrimPoint) -> None:
        """Returns once it is done here, behind an earlier one that is under way. Raises what the log does."""
        is_there = False
        while not is_there:
            self.on_commit()
            is_there = self._log.state.start.position >= to.point.position
            if self._trimming is None:
                return
            await asyncio.wait([trimming := self._trimming])
            trimming.result()

    async def set(
        self, max_age_ms: int | None, max_bytes: int | None, *, dry_run: bool = False
    ) -> tuple[GroupSettings, Trimmed]:
        """Changes the policy; returns it once it is committed, and what the next trim takes by it. 0: no limit. None:
        as it is.

        Raises NOT_LEADER, and what an append raises.
        """
        self._context.admission.check_leader()

        def edit(settings: GroupSettings) -> GroupSettings:
            return settings._replace(
                retention_max_age_ms=settings.retention_max_age_ms if max_age_ms is None else max_age_ms,
                retention_max_bytes=settings.retention_max_bytes if max_bytes is None else max_bytes,
            )

        settings = edit(self._settings.current) if dry_run else await self._settings.change(edit)
        return settings, self._taken(self._by_policy(settings))

    def _boundaries(self) -> list[Boundary]:
        """The points to which the log may be trimmed. Everything before is committed, the point lies above the present
        start, and a state machine's checkpoint replaces the trimmed part."""
        start, limit = self._log.state.start.position, self._context.machine.trim_limit
        return [
            each
            for each in self._log.boundaries()
            if start < each.trim.point.position <= self._commit_position and each.trim.first_index <= limit
        ]

    def _by_policy(self, settings: GroupSettings) -> Boundary | None:
        """The highest boundary before which everything is too old, or too much; or replaced by a checkpoint."""
        if self._context.machine.has_machine:
            boundaries = self._boundaries()
            return boundaries[-1] if boundaries else None
        max_age_ms, max_bytes = settings.retention_max_age_ms, settings.retention_max_bytes
        chosen, taken_bytes = None, 0
        if max_age_ms or max_bytes:
            oldest_ms = self._clock_ms() - max_age_ms
            excess_bytes = self._log.kept_bytes - max_bytes
            for boundary in self._boundaries():
                too_old = max_age_ms > 0 and boundary.last_timestamp_ms < oldest_ms
                too_much = max_bytes > 0 and taken_bytes < excess_bytes
                if not too_old and not too_much:
                    break
                chosen, taken_bytes = boundary, boundary.size_bytes
        return chosen

    def _clock_ms(self) -> int:
        """The clock for ages: the leader's own, or a majority's of the voters if that one is behind."""
        leadership, own_ms = self._context.core.leadership, self._context.wall_clock_ms()
        if leadership is None:
            return 0
        return leadership.agreed_clock_ms(own_ms, self._context.now_ms())

    def _taken(self, boundary: Boundary | None) -> Trimmed:
        first_index = self._log.state.first_index
        if boundary is None:
            return Trimmed(first_index, 0, 0)
        kept = boundary.trim.first_index
        return Trimmed(kept, kept - first_index, boundary.size_bytes)

    def _apply_policy(self) -> None:
        """Trims what the policy lets go. What stands in the way now does not in a second: it is tried again then."""
        boundary = self._by_policy(self._settings.current)
        if boundary is None or self._frames.is_pending or not self._context.core.is_ready:
            return
        try:
            self._frames.begin(trim_body(boundary.trim))
        except DLedgerError as refusal:
            logger.debug("no trim now", extra={"group": self._context.group, "why": refusal})

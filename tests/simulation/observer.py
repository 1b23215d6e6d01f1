"""An observer around the log of one group in one life: the judge hears of what a node does before it is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dledger.common.errors import Code, DLedgerError
from dledger.common.types import Position, TrimPoint
from dledger.log.file_log import FileLog
from dledger.log.frame.frame import Frame

if TYPE_CHECKING:
    from tests.simulation.life import GroupLife


class Observer:
    """Stands around a log's methods: checks before, tells afterwards."""

    def __init__(self, life: GroupLife, log: FileLog) -> None:
        self._life = life
        self._seat = life.seat
        self._watch = life.seat.group.watch
        self._hit = life.seat.cluster.trace.hit
        self._log = log
        self._append, self._truncate, self._reset, self._trim = log.append, log.truncate, log.reset, log.trim
        log.append = self._on_append  # type: ignore[method-assign]
        log.truncate = self._on_truncate  # type: ignore[method-assign]
        log.reset = self._on_reset  # type: ignore[method-assign]
        log.trim = self._on_trim  # type: ignore[method-assign]
        self._cut, self._begin_anew = log._truncate, log._reset
        log._truncate = self._on_cut  # type: ignore[method-assign]
        log._reset = self._on_begin_anew  # type: ignore[method-assign]
        replica = life.replica
        core, commits, appender = replica.core, log._commit, replica.appender
        self._commit, self._done, self._answer = core._commit, commits._done, appender._answer_duplicate
        self._begin_round = core.begin_read_round
        core.begin_read_round = self._on_round  # type: ignore[method-assign]
        core._commit = self._on_commit  # type: ignore[method-assign]
        commits._done = self._on_done  # type: ignore[assignment, method-assign]
        appender._answer_duplicate = self._on_duplicate  # type: ignore[method-assign]

    def _on_append(self, frames: Sequence[Frame], *, sync_after_turn: bool = False) -> None:
        log, watch = self._log, self._watch
        active, state = log._files.active, log.state
        end_before, members_before, changed = (active.path, active.end_offset), state.members, state.members_position
        facts = watch.trying(self._seat, frames)
        try:
            self._append(frames, sync_after_turn=sync_after_turn)
        except DLedgerError as refusal:
            self._hit(f"branch append refused {refusal.code.name}", self._seat.name)
            if refusal.code is not Code.TERM_CHANGED:
                watch.refused(facts)
            raise
        self._life.truth.appended(frames, end_before)
        watch.appended(self._seat, facts, members_before, changed)

    async def _on_truncate(self, after: Position) -> None:
        self._watch.truncating(self._seat, after)
        self._hit("branch truncate", self._seat.name, after)
        if self._log.state.members_position > after:
            self._hit("branch members taken back", self._seat.name)
        self._life.was_cut = True
        await self._truncate(after)
        self._watch.restated(self._seat)

    async def _on_cut(self, after: Position) -> None:
        """In a task of the log's own, which goes on when whoever asked for it is gone."""
        self._life.cut_to = after
        self._seat.cluster.on_cut(self._seat)
        try:
            await self._cut(after)
        finally:
            if self._log._commit.failure is None:
                self._life.cut_to = None
        self._life.truth.cut(after)

    async def _on_reset(self, log_state: bytes) -> None:
        self._life.was_cut = True
        self._seat.cluster.on_cut(self._seat)
        await self._reset(log_state)
        self._hit("branch reset", self._seat.name)
        self._watch.restated(self._seat)

    async def _on_begin_anew(self, log_state: bytes) -> None:
        """As ``_on_cut``, of a log that is replaced."""
        await self._begin_anew(log_state)
        self._life.truth.begun_anew()

    async def _on_trim(self, to: TrimPoint) -> None:
        if to.point.position > self._log.state.start.position:
            self._watch.trimming(self._seat, to)
            self._hit("branch trim", self._seat.name)
        await self._trim(to)

    def _on_commit(self, position: Position) -> None:
        core = self._life.replica.core
        before = core.commit_position
        self._commit(position)
        if core.commit_position > before:
            self._watch.committed(self._seat)

    def _on_done(self, generation: int, *rest: object) -> None:
        if generation != self._log._commit._generation:
            self._hit("branch stale completion", self._seat.name)
        self._done(generation, *rest)  # type: ignore[arg-type]

    def _on_round(self, now_ms: float) -> int:
        self._hit("branch read-index round", self._seat.name)
        return self._begin_round(now_ms)

    def _on_duplicate(self, batch: object, known: object) -> None:
        self._hit("branch duplicate answered", self._seat.name)
        self._answer(batch, known)  # type: ignore[arg-type]

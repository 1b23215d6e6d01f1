"""Logs in memory that misbehave when they are told to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Self

from dledger.common.errors import Code, error
from dledger.common.types import GENESIS, LogPoint, Position, TrimPoint
from dledger.log.frame.frame import Frame
from dledger.log.log_api import Damaged, DamagedRange
from dledger.testing.memory_log import MemoryLog


class FullLog(MemoryLog):
    """Its disk is full while ``is_full``."""

    is_full = False

    @classmethod
    def of(cls, log: MemoryLog) -> Self:
        """Makes ``log``, which is in use, one."""
        log.__class__ = cls
        assert isinstance(log, cls)
        return log

    def append(self, frames: Sequence[Frame], *, sync_after_turn: bool = False) -> None:
        if self.is_full:
            raise error(Code.DISK_FULL, "no room")
        super().append(frames, sync_after_turn=sync_after_turn)

    async def prove_room(self) -> bool:
        return not self.is_full


class BrokenLog(MemoryLog):
    """Its next append raises ``refusal``, and has written what it was given if ``has_written``."""

    refusal: Exception | None = None
    has_written = False

    @classmethod
    def of(cls, log: MemoryLog) -> Self:
        """Makes ``log``, which is in use, one."""
        log.__class__ = cls
        assert isinstance(log, cls)
        return log

    def append(self, frames: Sequence[Frame], *, sync_after_turn: bool = False) -> None:
        if self.refusal is None or self.has_written:
            super().append(frames, sync_after_turn=sync_after_turn)
        if self.refusal is not None:
            raise self.refusal


class FailsOnceLog(MemoryLog):
    """Its next append fails, and leaves nothing; those behind it do not. ``written`` are theirs."""

    written: list[Frame]
    _refusal: Exception | None

    @classmethod
    def of(cls, log: MemoryLog, refusal: Exception) -> Self:
        """Makes ``log``, which is in use, one."""
        log.__class__ = cls
        assert isinstance(log, cls)
        log.written, log._refusal = [], refusal
        return log

    def append(self, frames: Sequence[Frame], *, sync_after_turn: bool = False) -> None:
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal
        self.written += frames
        super().append(frames, sync_after_turn=sync_after_turn)


class SlowLog(MemoryLog):
    """Its truncations wait until they may go on."""

    may_go_on: asyncio.Event

    @classmethod
    def of(cls, log: MemoryLog) -> Self:
        """Makes ``log``, which is in use, one."""
        log.__class__ = cls
        assert isinstance(log, cls)
        log.may_go_on = asyncio.Event()
        return log

    async def truncate(self, after: Position) -> None:
        await self.may_go_on.wait()
        await super().truncate(after)


class DiskLikeLog(MemoryLog):
    """What lies behind the newest few frames is read, and truncations take, as long as a disk."""

    @classmethod
    def of(cls, log: MemoryLog) -> Self:
        """Makes ``log``, which is in use, one."""
        log.__class__ = cls
        assert isinstance(log, cls)
        return log

    def cached(self, first: Position, max_bytes: int) -> list[Frame] | None:
        return super().cached(first, max_bytes) if first > self.last.position - 3 else None

    async def read(self, first: Position, max_bytes: int) -> list[Frame]:
        await asyncio.sleep(0.002)
        return super().cached(first, max_bytes) or []

    async def truncate(self, after: Position) -> None:
        await asyncio.sleep(0.3)
        await super().truncate(after)


class HungLog(MemoryLog):
    """Its fdatasyncs do not come back before they may."""

    _held: list[tuple[int, Position]]
    _hangs: bool

    @classmethod
    def of(cls, log: MemoryLog) -> Self:
        """Makes ``log``, which is in use, one that hangs from now on."""
        log.__class__ = cls
        assert isinstance(log, cls)
        log._held, log._hangs = [], True
        return log

    def come_back(self) -> None:
        self._hangs = False
        held, self._held = self._held, []
        for generation, position in held:
            self._synced(generation, position)

    def _synced(self, generation: int, position: Position) -> None:
        if self._hangs:
            self._held.append((generation, position))
        else:
            super()._synced(generation, position)


class DamagedPointLog(MemoryLog):
    """What a COMPARE or a TRUNCATE looks at lies in a frame that is damaged."""

    @classmethod
    def of(cls, log: MemoryLog) -> Self:
        log.__class__ = cls
        assert isinstance(log, cls)
        return log

    async def point_at(self, position: Position) -> LogPoint:
        raise Damaged(f"the frame at {position} is damaged", DamagedRange(position, position, GENESIS))


class TrimmedMeanwhileLog(MemoryLog):
    """The point asked for is found damaged, and then trimmed."""

    async def point_at(self, position: Position) -> LogPoint:
        to = (await self.read(Position(4), 1))[0].header
        await self.trim(TrimPoint(to.point, to.end_index))
        raise Damaged("frames 2 to 2 are damaged", DamagedRange(position, position, GENESIS))

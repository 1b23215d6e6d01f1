"""What a node does to its disk, each thing by itself: the power is cut at every call of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from copy import deepcopy
from random import Random
from typing import NamedTuple

from dledger.common.types import DEFAULT_GROUP, Durability, NodeId, NodeStart, Position, Term
from dledger.group.group_record import GroupRecord
from dledger.group.hard_state import HardState, HardStateStore
from dledger.log.file_log import FileLog
from dledger.log.frame.frame import Frame
from dledger.log.log_api import Damaged
from dledger.node.identity import open_identity
from tests.crashes.medium import Image, RecordedPlatter, RecordingDisk, Shot
from tests.crashes.promises import (
    DATA,
    GROUP,
    LIMITS,
    DamagedPromise,
    LogModel,
    NodePromise,
    Promise,
    VotePromise,
)
from tests.unit.log.harness import Witness, frames_after, open_at, state_behind

IDLE_S = 0.05
"""Longer than a log waits before it writes a mark alone."""


class Point(NamedTuple):
    """A moment at which the power goes, or the process is killed."""

    call: str
    ordinal: int
    """Of the call, in its scenario."""
    is_after: bool
    promise: Promise
    shot: Shot
    platter: RecordedPlatter | None
    """Where the process may be killed: what the machine has then, page cache and all."""

    def __str__(self) -> str:
        return f"{'after' if self.is_after else 'before'} call {self.ordinal}, {self.call}"


class Stage:
    """A disk, and what is promised of it, while a scenario plays."""

    def __init__(
        self, image: Image | None = None, *, platter: RecordedPlatter | None = None, kills: bool = False
    ) -> None:
        """``kills``: the process may be killed at every point."""
        self.platter = platter or RecordedPlatter(image)
        self._kills = kills
        self.disk = RecordingDisk(self.platter, self._on_call)
        self.model = LogModel()
        self.promise: Callable[[], Promise] = lambda: self.model.promise
        self.points: list[Point] = []
        self.calls = 0
        self._recording = False

    def record(self) -> None:
        """The power may go from now on."""
        self._recording = True

    def mark(self, name: str) -> None:
        """The power may go here too."""
        self._on_call(name, True)

    def rot(self, good: bytes) -> None:
        """They are, wherever they are stored, something else from now on."""
        rotten = bytes(byte ^ 0xFF for byte in good)
        for file in map(self.platter.find, self.platter.paths()):
            if good in file.data:
                file.spoil(file.data.index(good), rotten)

    def end(self) -> None:
        self.mark("end")
        self._recording = False

    def _on_call(self, name: str, after: bool) -> None:
        if self._recording:
            self.calls += not after
            platter = deepcopy(self.platter) if self._kills else None
            self.points.append(Point(name, self.calls, after, self.promise(), self.platter.shot(), platter))

    async def open_log(self) -> FileLog:
        log = await open_at(GROUP, self.disk, LIMITS, must_exist=self.model.must_exist)
        self.model.must_exist = True
        return log


class Hearer(Witness):
    """Tells the model what the log says is durable."""

    def __init__(self, log: FileLog, model: LogModel) -> None:
        self._model = model
        super().__init__(log)

    def _on_durable(self, position: Position) -> None:
        super()._on_durable(position)
        self._model.durable(position)


class Writer:
    """An open log that the stage's model follows."""

    def __init__(self, stage: Stage, log: FileLog) -> None:
        self.log = log
        self._stage = stage
        self._model = stage.model
        self._hearer = Hearer(log, stage.model)

    async def append(self, count: int, *, term: int = 1, size_bytes: int = 100) -> None:
        """One write of ``count`` frames, until they are durable."""
        frames = frames_after(self.log, count, size_bytes, term=term)
        self._model.appending(frames)
        self.log.append(frames)
        await self._hearer.all_durable()
        await self.log._sealer.drain()

    async def truncate(self, after: int) -> None:
        self._model.cutting(after)
        await self.log.truncate(Position(after))
        self._model.cut(after)

    async def trim(self, boundary: int) -> None:
        bounds = self.log.boundaries()
        to = bounds[boundary].trim
        position = to.point.position
        self._model.trimming({int(each.trim.point.position) for each in bounds[: boundary + 1]})
        await self.log.trim(to)
        self._model.trimmed(position)

    async def rot(self, position: int) -> Frame:
        """The frame, as it was; the log knows that it is damaged."""
        (good,) = await self.log.read(Position(position), 1)
        self._stage.promise = lambda: DamagedPromise(self._model.promise, position)
        self._stage.rot(good.raw)
        self.log._cache.truncate(0)
        with suppress(Damaged):
            await self.log.read(Position(position), 1)
        return good

    async def repair(self, good: Frame) -> None:
        (damaged,) = self.log.damaged()
        await self.log.repair(damaged, [good])
        self._stage.promise = lambda: self._model.promise
        self._stage.mark("repaired")

    async def reset(self, last: int) -> None:
        state = await state_behind(last)
        self._model.resetting(state)
        await self.log.reset(state)
        self._model.reset()


async def _filled(stage: Stage, *runs: int) -> Writer:
    """A log that has taken so many frames, so many in each write."""
    writer = Writer(stage, await stage.open_log())
    for count in runs:
        await writer.append(count)
    await asyncio.sleep(IDLE_S)
    return writer


async def create(stage: Stage) -> None:
    """The first start of a log."""
    stage.record()
    await stage.open_log()
    stage.end()


async def append(stage: Stage) -> None:
    """Groups one after the other, and idling, so that marks ride with groups and go alone."""
    writer = await _filled(stage, 1)
    stage.record()
    for count in (1, 2, 1):
        await writer.append(count, size_bytes=60)
        await asyncio.sleep(IDLE_S)
    stage.end()


async def append_large(stage: Stage) -> None:
    """Frames of several sectors, whose parts persist in any order."""
    writer = await _filled(stage, 1)
    stage.record()
    await writer.append(1, size_bytes=1200)
    await writer.append(2, size_bytes=700)
    await asyncio.sleep(IDLE_S)
    stage.end()


async def append_overlapping(stage: Stage) -> None:
    """Frames that are written while the group before is being synced."""
    writer = await _filled(stage, 1)
    stage.record()
    for _ in range(3):
        frames = frames_after(writer.log, 1, 60)
        stage.model.appending(frames)
        writer.log.append(frames)
        await asyncio.sleep(0)
    await writer.append(1)
    await asyncio.sleep(IDLE_S)
    stage.end()


async def roll(stage: Stage) -> None:
    """Several segments: the group covers two files and the directory; the old one is sealed, the next prepared."""
    writer = await _filled(stage, 3)
    stage.record()
    for _ in range(3):
        await writer.append(3, size_bytes=60)
    await asyncio.sleep(IDLE_S)
    stage.end()


async def roll_at_once(stage: Stage) -> None:
    """One write that spans three segments."""
    writer = await _filled(stage, 2)
    stage.record()
    await writer.append(9, size_bytes=40)
    await asyncio.sleep(IDLE_S)
    stage.end()


async def truncate(stage: Stage) -> None:
    """Within the segment that is written to; then it goes on in a new term."""
    writer = await _filled(stage, 3)
    stage.record()
    await writer.truncate(1)
    await writer.append(2, term=2)
    await asyncio.sleep(IDLE_S)
    stage.end()


async def truncate_across(stage: Stage) -> None:
    """Over sealed segments, which go from the last to the first."""
    writer = await _filled(stage, 4, 4, 3)
    stage.record()
    await writer.truncate(2)
    await writer.append(3, term=2)
    await asyncio.sleep(IDLE_S)
    stage.end()


async def truncate_unsynced(stage: Stage) -> None:
    """Frames that were written and not synced are cut with those that were."""
    writer = await _filled(stage, 3)
    frames = frames_after(writer.log, 3, 60)
    stage.record()
    stage.model.appending(frames)
    writer.log.append(frames[:1])  # its sync is under way
    writer.log.append(frames[1:])  # these wait for the next one
    await writer.truncate(5)
    await writer.append(2, term=2)
    stage.end()


async def truncate_to_nothing(stage: Stage) -> None:
    """Everything, and what follows is written in its place."""
    writer = await _filled(stage, 4, 2)
    stage.record()
    await writer.truncate(0)
    await writer.append(5, term=2)
    stage.end()


async def trim(stage: Stage) -> None:
    """The oldest segments go; then more of them."""
    writer = await _filled(stage, 4, 4, 4, 2)
    stage.record()
    await writer.trim(1)
    await writer.append(2)
    await writer.trim(0)
    stage.end()


async def reset(stage: Stage) -> None:
    """The log begins anew far ahead, and goes on from there."""
    writer = await _filled(stage, 4, 3)
    stage.record()
    await writer.reset(50)
    await writer.append(2, term=4)
    await asyncio.sleep(IDLE_S)
    stage.end()


async def repair(stage: Stage) -> None:
    """A frame of several sectors that rotted is written back: one of a sealed segment, then one of the segment that is
    written to; then that goes on."""
    writer = await _filled(stage, 1)
    await writer.append(3, size_bytes=700)
    await writer.append(3, size_bytes=700)
    await asyncio.sleep(IDLE_S)
    stage.record()
    for position in (2, 6):
        await writer.repair(await writer.rot(position))
    await writer.append(1)
    stage.end()


async def stop_and_start(stage: Stage) -> None:
    """In order: the last mark says so, and the next start takes it back."""
    writer = await _filled(stage, 3, 2)
    stage.record()
    await writer.append(1)
    await writer.log.close()
    writer = Writer(stage, await stage.open_log())
    await writer.append(1)
    stage.end()


async def vote(stage: Stage) -> None:
    """The first hard state, and votes in later terms."""
    first = HardState()
    saved, saving = first, first
    must_exist = False
    stage.promise = lambda: VotePromise(saved, saving, must_exist)
    stage.record()
    store = await HardStateStore.open(stage.disk, GROUP)
    must_exist = True
    for term, name in ((1, ""), (1, "n1"), (7, "n0"), (8, "n2")):
        saving = HardState(Term(term), NodeId(name))
        await store.save(saving)
        saved = saving
    stage.end()


async def first_starts(stage: Stage) -> None:
    """A data directory comes to be; it is started twice more, and votes."""
    heard: NodeStart | None = None
    must_exist = False
    saved = saving = HardState()
    stage.promise = lambda: NodePromise(heard, VotePromise(saved, saving, must_exist), stage.model.promise)
    stage.record()
    for start in range(3):
        identity = await open_identity(stage.disk, DATA, NodeId("n0"), Random(start))
        must_exist = DEFAULT_GROUP in identity.groups
        record = await GroupRecord.open(stage.disk, GROUP, DEFAULT_GROUP, Durability.FSYNC, must_exist=must_exist)
        store = await HardStateStore.open(stage.disk, GROUP, must_exist=must_exist)
        log = await stage.open_log()
        await identity.keep_group(DEFAULT_GROUP)
        await record.begin_start()
        await identity.begin_start()
        heard = identity.start
        saving = HardState(Term(start + 1), NodeId("n1"))
        await store.save(saving)
        saved = saving
        await log.close()
        await identity.close()
    stage.end()


def recovery(promise: Promise) -> Callable[[Stage], Awaitable[None]]:
    """A start on what a power cut, or the end of a process, left. What it found stays: others may have heard of it."""

    async def recover(stage: Stage) -> None:
        stage.promise = lambda: promise
        stage.record()
        found = await promise.begin(stage.disk)
        stage.promise = lambda: found.promise
        stage.mark("started")
        stage.promise = lambda: found.going_on
        await found.go_on()
        stage.end()

    return recover


SCENARIOS: dict[str, Callable[[Stage], Awaitable[None]]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        create,
        append,
        append_large,
        append_overlapping,
        roll,
        roll_at_once,
        truncate,
        truncate_across,
        truncate_unsynced,
        truncate_to_nothing,
        trim,
        reset,
        repair,
        stop_and_start,
        vote,
        first_starts,
    )
}

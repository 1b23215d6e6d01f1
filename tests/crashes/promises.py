"""What was promised when the power went, and whether a start keeps it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol

from dledger.common.config import Limits
from dledger.common.errors import CorruptLog
from dledger.common.types import DEFAULT_GROUP, Durability, LogPoint, NodeId, NodeStart, Position, Term, TrimPoint
from dledger.group.group_record import GroupRecord
from dledger.group.hard_state import HardState, HardStateStore
from dledger.log.damage.damaged_log import DamagedLog, open_damaged
from dledger.log.file_log import FileLog
from dledger.log.frame.frame import Frame, parse_frame
from dledger.log.frame.log_snapshot import LogSnapshot
from dledger.log.log_api import Damaged
from dledger.log.recovery.inventory import take_inventory
from dledger.log.segment.segment_files import SegmentFiles
from dledger.log.verify import _Verifier
from dledger.node.identity import open_identity
from tests.crashes.medium import Image, RecordedPlatter, RecordingDisk
from tests.unit.log.harness import MEMBERS, Witness, all_frames, frames_after, open_at

DATA = Path("/data")
GROUP = DATA / "groups" / "default"
LIMITS = Limits(segment_max_bytes=8192, segment_max_frames=4)


class Found(NamedTuple):
    """What a start found, which is promised from then on: others may have heard of it."""

    promise: Promise
    going_on: Promise
    """While it goes on: what was found, with or without what comes next."""
    go_on: Callable[[], Awaitable[None]]
    """Changes something more, and ends what the start opened."""


class Promise(Protocol):
    """Compared, and hashed, by value: the same promise on the same files is checked once."""

    async def check(self, image: Image) -> None:
        """Starts from ``image``. Raises AssertionError, or whatever the start raises."""
        ...

    async def begin(self, disk: RecordingDisk) -> Found:
        """Starts on ``disk``. Raises as ``check``."""
        ...


class Line(NamedTuple):
    """One log that may be found: it begins behind one of ``starts``, and ends between ``floor`` and its last frame."""

    first: int
    """The position before ``frames[0]``."""
    frames: tuple[bytes, ...]
    floor: int
    """Up to here nothing may be missing."""
    starts: frozenset[int]
    state: bytes
    """The small state at ``first``."""

    @property
    def last(self) -> int:
        return self.first + len(self.frames)


class LogPromise(NamedTuple):
    """The log is one of these; there are two while it is being replaced."""

    lines: tuple[Line, ...]
    must_exist: bool

    async def check(self, image: Image) -> None:
        platter = RecordedPlatter(image)
        disk = RecordingDisk(platter)
        log = await open_at(GROUP, disk, LIMITS, must_exist=self.must_exist)
        _check_marks(disk, log)
        frames = await all_frames(log)
        line = self._line_of(log, frames)
        expected = _state_of(line, frames, log.state.start, log.state.first_index)
        assert log.state.encode() == expected.encode(), "the small state is not that of its frames"
        report = _Verifier(disk, GROUP).run()
        assert report.ok, f"a verify finds {report.bad}"
        await _goes_on(log, platter)

    async def begin(self, disk: RecordingDisk) -> Found:
        log = await open_at(GROUP, disk, LIMITS, must_exist=self.must_exist)
        found = await self.found(log)
        further = frames_after(log, 1, term=9)
        (line,) = found.lines
        longer = line._replace(frames=(*line.frames, *(frame.raw for frame in further)))

        async def go_on() -> None:
            witness = Witness(log)
            log.append(further)
            await witness.all_durable()
            await log.close()

        return Found(found, LogPromise((longer,), must_exist=True), go_on)

    async def found(self, log: FileLog) -> LogPromise:
        """What is promised of a log that was just opened."""
        line, last = self._line_of(log, await all_frames(log)), log.last.position
        kept = line._replace(frames=line.frames[: last - line.first], floor=last)
        return LogPromise((kept._replace(starts=frozenset({log.state.start.position})),), must_exist=True)

    def _line_of(self, log: FileLog, frames: list[Frame]) -> Line:
        """Which of the lines was found. Raises AssertionError when it is none."""
        start, last = log.state.start.position, log.last.position
        found = tuple(frame.raw for frame in frames)
        for line in self.lines:
            kept = line.frames[start - line.first : last - line.first]
            if start in line.starts and line.floor <= last <= line.last and found == kept:
                return line
        allowed = " or ".join(f"{sorted(each.starts)} to {each.floor}..{each.last}" for each in self.lines)
        raise AssertionError(f"{start} to {last} with {len(frames)} frames was found, not {allowed}, or other frames")


def _check_marks(disk: RecordingDisk, log: FileLog) -> None:
    files = SegmentFiles(disk, GROUP, "default")
    durable = take_inventory(files, disk.listdir(str(GROUP)))
    assert durable.point == log.last, f"the mark says {durable.point}, the log ends at {log.last}"


def _state_of(line: Line, frames: list[Frame], start: LogPoint, first_index: int) -> LogSnapshot:
    state = LogSnapshot.decode(line.state)
    last = frames[-1].header.position if frames else start.position
    for raw in line.frames[: last - line.first]:
        state.apply(parse_frame(raw))
    state.begin_at(TrimPoint(start, first_index))
    return state


async def _goes_on(log: FileLog, platter: RecordedPlatter) -> None:
    """A frame more, and the power goes again: it is there."""
    witness = Witness(log)
    log.append(frames_after(log, 1, size_bytes=10, term=9))
    await witness.all_durable()
    expected = log.last
    nothing_more = platter.shot().nothing_more()
    await log.close()
    again = await open_at(GROUP, RecordingDisk(RecordedPlatter(nothing_more)), LIMITS, must_exist=True)
    assert again.last == expected, "what was appended after the start is lost"
    Witness(again)
    await again.close()


class DamagedPromise(NamedTuple):
    """A frame of a log that is at rest rotted. It is there, or known to be damaged, and then taken back for good; every
    other one is there in any case."""

    log: LogPromise
    position: int

    async def check(self, image: Image) -> None:
        platter = RecordedPlatter(image)
        log = await self._open(RecordingDisk(platter))
        await self._repair(log)
        nothing_more = platter.shot().nothing_more()
        await log.close()
        await self.log.check(nothing_more)

    async def begin(self, disk: RecordingDisk) -> Found:
        log = await self._open(disk)

        async def go_on() -> None:
            await self._repair(log)
            await log.close()

        return Found(self, self, go_on)

    async def _open(self, disk: RecordingDisk) -> FileLog | DamagedLog:
        """Reads all of it: what is known to be damaged is said, and what is served is right."""
        log = await _open_in_any_case(disk, must_exist=self.log.must_exist)
        (line,) = self.log.lines
        assert (log.state.start.position, log.last.position) == (line.first, line.last), "frames are missing"
        for position, raw in enumerate(line.frames, line.first + 1):
            with suppress(Damaged):
                assert (await log.read(Position(position), 1))[0].raw == raw, f"{position} is served, and is wrong"
        spans = {(each.first, each.last) for each in log.damaged()}
        assert spans <= {(self.position, self.position)}, f"{spans} are given up"
        return log

    async def _repair(self, log: FileLog | DamagedLog) -> None:
        (line,) = self.log.lines
        for damaged in log.damaged():
            await log.repair(damaged, [parse_frame(line.frames[self.position - line.first - 1])])


async def _open_in_any_case(disk: RecordingDisk, *, must_exist: bool) -> FileLog | DamagedLog:
    try:
        log = await open_at(GROUP, disk, LIMITS, must_exist=must_exist)
    except CorruptLog as why:
        return await open_damaged(disk, GROUP, "default", members=MEMBERS, why=why)
    log._cache.truncate(0)
    return log


class LogModel:
    """What a log was told, and told itself, so far."""

    def __init__(self) -> None:
        self.must_exist = False
        self._line = Line(0, (), 0, frozenset({0}), LogSnapshot("default", MEMBERS).encode())
        self._other: Line | None = None

    @property
    def promise(self) -> LogPromise:
        lines = (self._line,) if self._other is None else (self._line, self._other)
        return LogPromise(lines, self.must_exist)

    def appending(self, frames: list[Frame]) -> None:
        self._line = self._line._replace(frames=(*self._line.frames, *(frame.raw for frame in frames)))

    def durable(self, position: int) -> None:
        line = self._line
        if position > line.floor:
            self._line = line._replace(floor=position)

    def cutting(self, after: int) -> None:
        self._line = self._line._replace(floor=min(self._line.floor, after))

    def cut(self, after: int) -> None:
        line = self._line
        self._line = line._replace(frames=line.frames[: after - line.first], floor=after)

    def trimming(self, starts: set[int]) -> None:
        self._line = self._line._replace(starts=self._line.starts | starts)

    def trimmed(self, start: int) -> None:
        self._line = self._line._replace(starts=frozenset({start}))

    def resetting(self, state: bytes) -> None:
        last = LogSnapshot.decode(state).last.position
        self._other = Line(last, (), last, frozenset({last}), state)

    def reset(self) -> None:
        assert self._other is not None
        self._line, self._other = self._other, None


class VotePromise(NamedTuple):
    """The hard state is the one saved last, or the one that was being saved."""

    saved: HardState
    saving: HardState
    must_exist: bool

    async def check(self, image: Image) -> None:
        platter = RecordedPlatter(image)
        store = await HardStateStore.open(RecordingDisk(platter), GROUP, must_exist=self.must_exist)
        assert store.state in (self.saved, self.saving), f"{store.state} was found"
        further = HardState(Term(store.state.term + 1), NodeId("n9"))
        await store.save(further)
        again = RecordingDisk(RecordedPlatter(platter.image()))
        assert (await HardStateStore.open(again, GROUP, must_exist=True)).state == further

    async def begin(self, disk: RecordingDisk) -> Found:
        store = await HardStateStore.open(disk, GROUP, must_exist=self.must_exist)
        assert store.state in (self.saved, self.saving), f"{store.state} was found"
        found, further = store.state, HardState(Term(store.state.term + 1), NodeId("n9"))
        return Found(
            VotePromise(found, found, must_exist=True),
            VotePromise(found, further, must_exist=True),
            partial(store.save, further),
        )


class NodePromise(NamedTuple):
    """A node starts, as ``Node`` does it, on the disk that it was on; it votes as it did; its log is there."""

    start: NodeStart | None
    """The last one that anybody heard of."""
    vote: VotePromise
    log: LogPromise

    async def check(self, image: Image) -> None:
        await (await self.begin(RecordingDisk(RecordedPlatter(image)))).go_on()

    async def begin(self, disk: RecordingDisk) -> Found:
        identity = await open_identity(disk, DATA, NodeId("n0"), Random(1))
        must_exist = DEFAULT_GROUP in identity.groups
        record = await GroupRecord.open(disk, GROUP, DEFAULT_GROUP, Durability.FSYNC, must_exist=must_exist)
        store = await HardStateStore.open(disk, GROUP, must_exist=must_exist)
        assert store.state in (self.vote.saved, self.vote.saving), f"{store.state} was found"
        log = await open_at(GROUP, disk, LIMITS, must_exist=must_exist)
        found = await self.log.found(log)
        await identity.keep_group(DEFAULT_GROUP)
        await record.begin_start()
        await identity.begin_start()
        self._check_follows(identity.start)
        Witness(log)

        further = HardState(Term(store.state.term + 1), NodeId("n9"))

        async def go_on() -> None:
            await store.save(further)
            await log.close()
            await identity.close()

        vote = VotePromise(store.state, store.state, must_exist=True)
        promise = NodePromise(identity.start, vote, found)
        return Found(promise, promise._replace(vote=vote._replace(saving=further)), go_on)

    def _check_follows(self, start: NodeStart) -> None:
        heard = self.start
        if heard is not None:
            assert heard.node_uuid == start.node_uuid, "the node is another one"
            assert start.start_count > heard.start_count, "a start was forgotten"
            assert start.nonce_of(heard.start_count) == heard.start_nonces[-1], "it is another line of starts"

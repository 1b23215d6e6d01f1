"""A log that rots anywhere, at any time, through random histories: what is good is read, what is not is refused, known
exactly after a scrub, and repaired."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from dledger.common.config import Limits
from dledger.common.errors import CorruptLog
from dledger.common.types import Index, LogPoint, Position, TrimPoint
from dledger.log.file_log import FileLog
from dledger.log.frame.frame import Frame
from dledger.log.log_api import Damaged
from dledger.log.segment.segment import FIRST_PAGE_BYTES
from tests.unit.log.harness import CarelessDisk, Witness, abandon, frames_after, open_at

LIMITS = Limits(segment_max_bytes=64 * 1024, segment_max_frames=25)
READ = 25
"""Frames are asked for at a time."""

fraction = st.floats(0, 1)


@contextmanager
def damage() -> Iterator[list[Damaged]]:
    """What was refused within, if it was."""
    refused: list[Damaged] = []
    try:
        yield refused
    except Damaged as why:
        refused.append(why)


class RottenLog(RuleBasedStateMachine):
    log: FileLog

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.directory = Path(tempfile.mkdtemp(prefix="dledger-rotten-"))
        self.disk = CarelessDisk()
        self.good: dict[int, Frame] = {}
        """What was appended, by position."""
        self.rotten: set[int] = set()

    @initialize()
    def start(self) -> None:
        self.runner.run(self._open())
        self.append(60, 100)

    @rule(count=st.integers(1, 30), size_bytes=st.sampled_from([0, 100, 1500, 5000]))
    def append(self, count: int, size_bytes: int) -> None:
        async def work() -> None:
            for _ in range(count):
                (frame,) = frames_after(self.log, 1, size_bytes)
                self.good[frame.header.position] = frame
                self.log.append([frame])
            await self.witness.all_durable()
            await self.log._sealer.drain()

        self.runner.run(work())

    @rule(at=fraction, of_frame=fraction, count=st.integers(1, 3))
    def rot_anywhere(self, at: float, of_frame: float, count: int) -> None:
        places = sorted(self._places())
        self._rot(places[int(at * (len(places) - 1))], of_frame, count)

    @rule(behind=st.integers(-3, 3), of_frame=fraction, count=st.integers(1, 4))
    def rot_at_the_beginning(self, behind: int, of_frame: float, count: int) -> None:
        self._rot(self._start + behind, of_frame, count)

    def _rot(self, first: int, of_frame: float, count: int) -> None:
        places = self._places()
        for position in range(first, first + count):
            if position in places and position not in self.rotten:
                path, offset = places[position]
                at = offset + int(of_frame * (self.good[position].header.frame_len - 1))
                with path.open("r+b") as file:
                    file.seek(at)
                    (before,) = file.read(1)
                    file.seek(at)
                    file.write(bytes([before ^ 0x41]))
                self.rotten.add(position)
        self.log._reader.forget()  # what memory holds of what was checked does not rot
        self.log._cache.truncate(0)

    @rule(at=fraction)
    def trim(self, at: float) -> None:
        """Whatever rotted."""
        position = self._start + int(at * min(40, self.log.last.position - self._start))
        if position > self._start:
            to = TrimPoint(self.good[position].header.point, self.good[position].header.end_index)
            self.runner.run(self.log.trim(to))
            assert self.log.state.start == to.point

    @rule(at=fraction)
    def truncate(self, at: float) -> None:
        after = self.log.last.position - int(at * max(0, min(8, self.log.last.position - self._start - 1)))
        with damage() as refused:
            self.runner.run(self.log.truncate(Position(after)))
        if refused:
            assert self.rotten & set(range(refused[0].range.first, refused[0].range.last + 1))
        else:
            self.good = {at: frame for at, frame in self.good.items() if at <= after}
            self.rotten &= self.good.keys()

    @rule()
    def repair(self) -> None:
        for missing in self.log.damaged():
            places = range(missing.first, missing.last + 1)
            self.runner.run(self.log.repair(missing, [self.good[at] for at in places]))
            self.rotten -= set(places)
        assert not self.log.damaged()

    @rule()
    def scrub(self) -> None:
        async def work() -> None:
            position = Position(self._start + 1)
            while position <= self.log.last.position:
                position = await self.log.scrub(position)

        self.runner.run(work())
        assert [(each.first, each.last) for each in self.log.damaged()] == self._missed()

    @rule(first=fraction, step=st.integers(1, 7), how=st.sampled_from(["read", "get", "point"]))
    def ask(self, first: float, step: int, how: str) -> None:
        start, last = self._start, self.log.last.position
        for position in range(start + 1 + int(first * max(0, last - start - 1)), last + 1, step)[:READ]:
            is_rotten = position in self.rotten and (how, position) != ("point", last)
            found = self.runner.run(self._ask(how, position))
            if is_rotten:
                assert isinstance(found, Damaged)
                assert found.range.first <= position <= found.range.last
            else:
                assert found == self.good[position].header.point
        assert {at for each in self.log.damaged() for at in range(each.first, each.last + 1)} <= self.rotten

    async def _ask(self, how: str, position: int) -> LogPoint | Damaged:
        with damage() as refused:
            if how == "read":
                return (await self.log.read(Position(position), 1))[0].header.point
            if how == "get":
                return (await self.log.frame_of(Index(self.good[position].header.base_index))).header.point
            return await self.log.point_at(Position(position))
        return refused[0]

    @rule()
    def tell_the_beginning(self) -> None:
        with damage() as refused:
            self.runner.run(self.log.state_at_start())
        for why in refused:
            assert why.range.last <= self._start or why.range.first == self._start + 1
            assert self.rotten & self._places().keys()

    @rule(killed=st.booleans())
    def start_again(self, killed: bool) -> None:
        """Where a start cannot do without what rotted, that is good again: to open a damaged log is another test."""
        places = self._places()
        self.runner.run(abandon(self.log) if killed else self.log.close())
        try:
            self.runner.run(self._open())
        except CorruptLog:
            for position in self.rotten & places.keys():
                path, offset = places[position]
                with path.open("r+b") as file:
                    file.seek(offset)
                    file.write(self.good[position].raw)
            self.rotten.clear()
            self.runner.run(self._open())
        self._forget_behind(self.log.last.position)

    def _forget_behind(self, last: int) -> None:
        """Only what rotted where no mark covers it, and what follows that, is cut by a start."""
        assert last + 1 in self.rotten or last + 1 not in self.good
        self.good = {at: frame for at, frame in self.good.items() if at <= last}
        self.rotten &= self.good.keys()

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.scrub()
            self.repair()
            self.runner.run(self.log.close())
        self.runner.close()
        self.disk.shutdown()
        shutil.rmtree(self.directory)

    async def _open(self) -> None:
        self.log = await open_at(self.directory, self.disk, LIMITS)
        self.witness = Witness(self.log)

    @property
    def _start(self) -> int:
        return self.log.state.start.position

    def _places(self) -> dict[int, tuple[Path, int]]:
        """File and offset of each frame that is there, trimmed or not."""
        found, segments = {}, self.log._files.segments
        ends = [*(each.name.base_position for each in segments[1:]), self.log.last.position + 1]
        for segment, end in zip(segments, ends, strict=True):
            offset = FIRST_PAGE_BYTES
            for position in range(segment.name.base_position, end):
                found[position] = (Path(segment.path), offset)
                offset += self.good[position].header.stored_bytes
        return found

    def _missed(self) -> list[tuple[int, int]]:
        """Runs of rotten frames of one segment, as far as they lie behind the beginning."""
        places = self._places()
        kept = sorted(at for at in self.rotten & places.keys() if at > self._start)
        runs = groupby(enumerate(kept), key=lambda each: (each[1] - each[0], places[each[1]][0]))
        return [(run[0][1], run[-1][1]) for run in ([*each] for _, each in runs)]


TestRottenLog = RottenLog.TestCase
TestRottenLog.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)

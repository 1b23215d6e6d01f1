"""The log on disk and the log in memory, driven side by side through random histories, are the same log."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dledger.common.config import Limits
from dledger.common.types import Index, Position, TrimPoint
from dledger.log.file_log import FileLog
from dledger.log.frame.frame import ControlKind, Frame
from dledger.testing.memory_log import MemoryLog
from tests.unit.log.harness import (
    MEMBERS,
    CarelessDisk,
    Witness,
    abandon,
    all_frames,
    control_frame,
    frames_after,
    open_at,
)

LIMITS = Limits(segment_max_bytes=8192, segment_max_frames=12, tail_cache_bytes=6000)


class SameLog(RuleBasedStateMachine):
    """Appends, truncations, trims, resets, clean stops and crashes of the process; what was durable must stay."""

    file: FileLog
    witness: Witness

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.directory = Path(tempfile.mkdtemp(prefix="dledger-model-"))
        self.disk = CarelessDisk()
        self.memory = MemoryLog("default", MEMBERS)

    @initialize()
    def start(self) -> None:
        self.runner.run(self._open())
        self.memory.set_callbacks(lambda _: None, lambda _: None)

    @rule(count=st.integers(1, 20), size_bytes=st.integers(0, 3000), term_step=st.integers(0, 2))
    def append(self, count: int, size_bytes: int, term_step: int) -> None:
        term = max(self.memory.last.term, 1) + term_step
        self.runner.run(self._append(frames_after(self.memory, count, size_bytes, term=term)))

    @rule()
    def append_control(self) -> None:
        frame = control_frame(self.memory.last, self.memory.state.next_index, ControlKind.PRODUCER)
        self.runner.run(self._append([frame]))

    @rule(fraction=st.floats(0, 1))
    def truncate(self, fraction: float) -> None:
        async def both() -> None:
            start, last = self.memory.state.start.position, self.memory.last.position
            after = Position(max(start + int((last - start) * fraction), self.file.commit_hint))
            await self.file.truncate(after)
            await self.memory.truncate(after)

        self.runner.run(both())

    @rule(fraction=st.floats(0, 1))
    def trim(self, fraction: float) -> None:
        async def both() -> None:
            start, last = self.memory.state.start.position, self.memory.last.position
            position = start + int((last - start) * fraction)
            if position > start:
                frame = self.memory.cached(Position(position), 1)
                assert frame is not None
                to = TrimPoint(frame[0].header.point, frame[0].header.end_index)
                self._commit(position)
                await self.memory.trim(to)
                await self.file.trim(to)

        self.runner.run(both())

    @rule(ahead=st.integers(1, 30), begin=st.integers(0, 20))
    def reset(self, ahead: int, begin: int) -> None:
        async def both() -> None:
            leader = MemoryLog("default", MEMBERS)
            leader.set_callbacks(lambda _: None, lambda _: None)
            leader.append(frames_after(leader, self.memory.last.position + ahead, term=max(self.memory.last.term, 1)))
            point = leader.cached(Position(self.memory.last.position + max(1, ahead - begin)), 1)
            assert point is not None
            await leader.trim(TrimPoint(point[0].header.point, point[0].header.end_index))
            log_state = await leader.state_at_start()
            await self.file.reset(log_state)
            await self.memory.reset(log_state)
            self._commit(self.memory.last.position)

        self.runner.run(both())

    @invariant()
    def both_know_the_state_at_the_start(self) -> None:
        if hasattr(self, "file"):

            async def both() -> tuple[bytes, bytes]:
                return await self.file.state_at_start(), await self.memory.state_at_start()

            on_disk, in_memory = self.runner.run(both())
            assert on_disk == in_memory

    @rule()
    def stop_and_start(self) -> None:
        async def again() -> None:
            await self.file.close()
            await self._open()
            assert self.file.recovery.clean_stop

        self.runner.run(again())

    @rule()
    def crash_and_start(self) -> None:
        async def again() -> None:
            await self.witness.all_durable()
            await abandon(self.file)
            await self._open()

        self.runner.run(again())

    @rule(fraction=st.floats(0, 1))
    def find_a_record(self, fraction: float) -> None:
        first, next_index = self.memory.state.first_index, self.memory.state.next_index
        if first < next_index:
            index = Index(first + int((next_index - 1 - first) * fraction))

            async def both() -> tuple[Frame, Frame]:
                return await self.file.frame_of(index), await self.memory.frame_of(index)

            on_disk, in_memory = self.runner.run(both())
            assert on_disk.raw == in_memory.raw

    @invariant()
    def both_are_the_same(self) -> None:
        if not hasattr(self, "file"):
            return
        assert self.file.state.encode() == self.memory.state.encode()
        assert self.file.durable_position <= self.file.last.position

        async def both() -> tuple[list[Frame], list[Frame]]:
            return await all_frames(self.file), await all_frames(self.memory)

        on_disk, in_memory = self.runner.run(both())
        assert [frame.raw for frame in on_disk] == [frame.raw for frame in in_memory]

    def teardown(self) -> None:
        if hasattr(self, "file"):
            self.runner.run(self.file.close())
        self.runner.close()
        self.disk.shutdown()
        shutil.rmtree(self.directory)

    async def _open(self) -> None:
        self.file = await open_at(self.directory, self.disk, LIMITS)
        self.witness = Witness(self.file)
        start = self.memory.state.start
        assert self.file.state.start.position <= start.position
        if self.file.last.position:
            await self.file.trim(TrimPoint(start, self.memory.state.first_index))

    def _commit(self, position: int) -> None:
        self.memory.set_commit_hint(Position(position))
        self.file.set_commit_hint(Position(position))

    async def _append(self, frames: list[Frame]) -> None:
        self.file.append(frames)
        self.memory.append(frames)


TestSameLog = SameLog.TestCase
TestSameLog.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)

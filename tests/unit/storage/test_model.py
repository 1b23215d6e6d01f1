"""The log on disk and the log in memory, driven side by side through random histories, are the same log."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dledger.config import Limits
from dledger.storage.frame import ControlKind, Frame
from dledger.storage.log import FileLog
from dledger.storage.memory import MemoryLog
from dledger.types import Index, Position
from tests.unit.storage.harness import (
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
    """Appends, truncations, clean stops and crashes of the process; everything that was durable must stay."""

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
            after = Position(int(self.memory.last.position * fraction))
            await self.file.truncate(after)
            await self.memory.truncate(after)

        self.runner.run(both())

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
        last = self.memory.state.last_index
        if last >= 0:
            index = Index(int(last * fraction))

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

    async def _append(self, frames: list[Frame]) -> None:
        self.file.append(frames)
        self.memory.append(frames)


TestSameLog = SameLog.TestCase
TestSameLog.settings = settings(
    max_examples=25, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)

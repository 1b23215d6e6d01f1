"""A reset: the log goes on behind a point beyond its end, with another node's small state; nothing old comes back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dledger.common.config import Limits
from dledger.common.errors import Code, CorruptLog, DiskFull, DLedgerError
from dledger.common.types import Index, Member, NodeId, Position, TrimPoint
from dledger.log.file_log import FileLog
from dledger.log.frame.control import membership_body
from dledger.log.frame.frame import ControlKind, Frame
from dledger.log.verify import verify
from dledger.testing.memory_log import MemoryLog
from tests.unit.log.harness import (
    MEMBERS,
    FaultyDisk,
    Witness,
    abandon,
    all_frames,
    control_frame,
    files_of,
    frames_after,
    open_at,
    opened,
    segments_of,
    write_log,
)

OTHERS = (Member(NodeId("n8"), "127.0.0.1:8"), Member(NodeId("n9"), "127.0.0.1:9"))


async def source(begin: int = 50, count: int = 60, group: str = "default") -> MemoryLog:
    """Another node's log, which begins behind position ``begin``, with members and a producer known from before."""
    log = MemoryLog(group, MEMBERS)
    Witness(log)
    log.append([control_frame(log.last, 0, ControlKind.MEMBERSHIP, membership_body(OTHERS))])
    log.append([control_frame(log.last, 0, ControlKind.PRODUCER)])
    log.append(frames_after(log, count - 2, term=3))
    frame = (await log.read(Position(begin), 1))[0].header
    await log.trim(TrimPoint(frame.point, frame.end_index))
    return log


async def rest(log: MemoryLog) -> list[Frame]:
    return await log.read(Position(log.state.start.position + 1), 1 << 20)


@pytest.mark.parametrize("frames", [0, 1, 30])
@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "crashed"])
async def test_a_reset_log_is_the_one_its_state_came_from(tmp_path: Path, frames: int, crash: bool) -> None:
    other = await source()
    start = await other.state_at_start()
    await write_log(tmp_path, frames, size_bytes=1000)
    log = await open_at(tmp_path)
    witness = Witness(log)
    await log.reset(start)
    assert log.state.encode() == await log.state_at_start() == start
    assert (log.last.position, log.durable_position, log.commit_hint) == (50, 50, 50)
    assert len(files_of(tmp_path, ".log")) == len(files_of(tmp_path, ".state")) == 1
    log.append(await rest(other))
    await witness.all_durable()
    assert log.state.encode() == other.state.encode()
    await (abandon(log) if crash else log.close())
    async with opened(tmp_path) as reopened:
        assert reopened.state.encode() == other.state.encode()
        assert [frame.raw for frame in await all_frames(reopened)] == [frame.raw for frame in await rest(other)]
        assert await reopened.state_at_start() == start
    assert verify(tmp_path).ok


async def test_a_log_reset_and_stopped_at_once_begins_there(tmp_path: Path) -> None:
    start = await (await source()).state_at_start()
    async with opened(tmp_path) as log:
        log.append(frames_after(log, 10))
        await log.reset(start)
    async with opened(tmp_path) as reopened:
        assert (reopened.state.encode(), reopened.commit_hint, reopened.state.members) == (start, 50, OTHERS)


async def test_what_lay_before_is_gone_for_readers_too(tmp_path: Path) -> None:
    async with opened(tmp_path) as log:
        log.append(frames_after(log, 10))
        await log.reset(await (await source()).state_at_start())
        assert log.cached(Position(10), 1) is None
        assert await log.read(Position(51), 1) == []
        for refused in (log.read(Position(10), 1), log.frame_of(Index(9)), log.read(Position(50), 1)):
            with pytest.raises(DLedgerError) as below:
                await refused
            assert below.value.code is Code.INDEX_LESS_THAN_LOCAL_BEGIN


async def test_a_read_under_way_sees_the_old_log_or_is_refused(tmp_path: Path) -> None:
    await write_log(tmp_path, 40)
    start = await (await source()).state_at_start()
    async with opened(tmp_path) as log:
        reads = [asyncio.create_task(log.read(Position(each), 500)) for each in range(1, 40, 3)]
        await log.reset(start)
        for outcome in await asyncio.gather(*reads, return_exceptions=True):
            assert isinstance(outcome, DLedgerError)
            assert outcome.code is Code.INDEX_LESS_THAN_LOCAL_BEGIN


async def test_completions_of_syncs_under_way_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FaultyDisk()
    log = await open_at(tmp_path, disk)
    witness = Witness(log)
    settling, settle = asyncio.Event(), log._commit._settle

    async def tell_and_settle() -> None:
        settling.set()
        await settle()

    monkeypatch.setattr(log._commit, "_settle", tell_and_settle)
    disk.hold_syncs = asyncio.Event()
    log.append(frames_after(log, 10))
    resetting = asyncio.create_task(log.reset(await (await source()).state_at_start()))
    await settling.wait()
    disk.hold_syncs.set()
    await resetting
    assert witness.durable == [50]
    await log.close()


@pytest.mark.parametrize("what", ["torn", "of another group", "not behind the end"])
async def test_a_state_that_does_not_fit_changes_nothing(tmp_path: Path, what: str) -> None:
    start = await (await source(begin=5, group="other" if what == "of another group" else "default")).state_at_start()
    if what == "torn":
        start = start[:-3]
    log = await open_at(tmp_path)
    witness = Witness(log)
    log.append(frames_after(log, 5 if what == "not behind the end" else 3))
    before = log.state.encode()
    with pytest.raises(CorruptLog):
        await log.reset(start)
    log.append(frames_after(log, 1))
    await witness.all_durable()
    assert log.last.position == (6 if what == "not behind the end" else 4)
    assert before != log.state.encode()
    await log.close()


async def test_without_room_the_log_stays_and_goes_on(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = await open_at(tmp_path, disk)
    witness = Witness(log)
    log.append(frames_after(log, 10))
    start = await (await source()).state_at_start()
    await log._preparer.close()
    disk.full = True
    with pytest.raises(DiskFull):
        await log.reset(start)
    log.append(frames_after(log, 1))
    await witness.all_durable()
    assert len(await all_frames(log)) == 11
    disk.full = False
    await log.reset(start)
    await log.close()
    async with opened(tmp_path) as reopened:
        assert reopened.state.encode() == start


async def test_what_a_reset_left_on_the_disk_goes_with_the_next_start(tmp_path: Path) -> None:
    await write_log(tmp_path, 30, size_bytes=1000)
    old = {path: path.read_bytes() for path in files_of(tmp_path)}
    start = await (await source()).state_at_start()
    async with opened(tmp_path) as log:
        await log.reset(start)
    for path, content in old.items():
        path.write_bytes(content)
    assert verify(tmp_path).as_dict()["first_index"] == 48
    async with opened(tmp_path) as reopened:
        assert reopened.state.encode() == start
    assert not set(files_of(tmp_path)) & set(old)


async def test_a_reset_log_can_be_reset_trimmed_and_cut(tmp_path: Path) -> None:
    first, second = await source(50), await source(80, 100)
    async with opened(tmp_path, limits=Limits(segment_max_frames=4)) as log:
        await log.reset(await first.state_at_start())
        await log.reset(await second.state_at_start())
        witness = Witness(log)
        for frame in await rest(second):
            log.append([frame])
        await witness.all_durable()
        await log._sealer.drain()
        await log.trim(log.boundaries()[1].trim)
        await log.truncate(Position(95))
        assert [frame.header.position for frame in await all_frames(log)] == list(range(89, 96))
        assert len(segments_of(tmp_path)) == 2


async def test_a_caller_that_is_cancelled_leaves_the_reset_whole(tmp_path: Path) -> None:
    start = await (await source()).state_at_start()
    log: FileLog = await open_at(tmp_path)
    Witness(log)
    log.append(frames_after(log, 10))
    resetting = asyncio.create_task(log.reset(start))
    await asyncio.sleep(0)
    resetting.cancel()
    await log.close()
    async with opened(tmp_path) as reopened:
        assert reopened.state.encode() == start

"""What a caller that went away has left in a thread, and what a task finds behind a close: neither touches the log."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from dledger.common.types import Position, TrimPoint
from dledger.disk.disk import OsDisk
from dledger.disk.syncer import Handle
from dledger.log.log_api import ScrubProgress
from dledger.log.segment.index import SparseIndex
from dledger.log.segment.segment import FIRST_PAGE_BYTES, Segment, read_trailer
from tests.unit.log.harness import Witness, frames_after, open_at, segments_of, write_log

WAIT_S = 10.0


class HeldDisk(OsDisk):
    """The first read of frames in ``path`` by a thread waits until it may go on."""

    path = ""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.may_go_on = threading.Event(), threading.Event()

    def pread(self, handle: Handle, size_bytes: int, offset: int) -> bytes:
        data = super().pread(handle, size_bytes, offset)
        is_of_frames = offset == FIRST_PAGE_BYTES and size_bytes > FIRST_PAGE_BYTES
        if is_of_frames and str(Path(f"/proc/self/fd/{handle}").readlink()) == self.path:
            self.path = ""
            self.reached.set()
            self.may_go_on.wait(WAIT_S)
        return data


def rot_footer(path: Path) -> None:
    """Its index is to be built again of the frames then."""
    content = bytearray(path.read_bytes())
    with path.open("rb") as file:
        trailer = read_trailer(OsDisk(), Handle(file.fileno()), len(content))
    assert trailer is not None
    content[trailer.footer_offset + 40] ^= 1
    path.write_bytes(content)


async def test_a_read_that_was_given_up_does_not_move_the_end_of_a_segment_that_is_cut_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write_log(tmp_path, 300)
    victim = segments_of(tmp_path)[-2]
    rot_footer(victim)
    disk = HeldDisk()
    log = await open_at(tmp_path, disk)
    witness = Witness(log)
    segment = next(each for each in log._files.segments if each.path == str(victim))
    loaded = threading.Event()
    load = log._files.load_index

    def loading(segment: Segment, handle: Handle) -> SparseIndex:
        try:
            return load(segment, handle)
        finally:
            loaded.set()

    monkeypatch.setattr(log._files, "load_index", loading)
    disk.path = str(victim)
    reading = asyncio.create_task(log.read(Position(segment.name.base_position + 2), 1))
    await asyncio.to_thread(disk.reached.wait, WAIT_S)
    reading.cancel()
    cutting = asyncio.create_task(log.truncate(Position(segment.name.base_position + 5)))
    await asyncio.wait([cutting], timeout=0.2)  # nor need it wait for that thread
    disk.may_go_on.set()
    await asyncio.to_thread(loaded.wait, WAIT_S)
    await asyncio.wait([reading])
    await cutting
    log.append(frames_after(log, 1, 1))
    await witness.all_durable()
    last = log.last
    await log.close()
    log = await open_at(tmp_path)
    assert log.last == last
    await log.close()


class LateDisk(OsDisk):
    """The scrub's progress waits to be renamed."""

    def __init__(self) -> None:
        super().__init__()
        self.at_rename, self.may_go_on = threading.Event(), threading.Event()

    def rename(self, source: str, target: str) -> None:
        if "scrub" in source:
            self.at_rename.set()
            self.may_go_on.wait(WAIT_S)
        super().rename(source, target)


async def test_a_close_waits_for_the_scrubs_progress_that_nobody_waits_for_any_more(tmp_path: Path) -> None:
    disk = LateDisk()
    log = await open_at(tmp_path, disk)
    saving = asyncio.create_task(log.keep_scrub_progress(ScrubProgress(Position(1), 1)))
    await asyncio.to_thread(disk.at_rename.wait, WAIT_S)
    saving.cancel()
    closing = asyncio.create_task(log.close())
    await asyncio.sleep(0.05)
    assert not closing.done()
    disk.may_go_on.set()
    await closing
    assert not list(tmp_path.glob("*.tmp"))


class HeldSealDisk(OsDisk):
    """A seal waits while it is held."""

    held: threading.Event | None = None

    def ftruncate(self, handle: Handle, size_bytes: int) -> None:
        if self.held is not None and size_bytes:
            self.held.wait(WAIT_S)
        super().ftruncate(handle, size_bytes)


async def test_a_close_waits_for_the_collector_that_a_seal_began_a_moment_before(tmp_path: Path) -> None:
    disk = HeldSealDisk()
    log = await open_at(tmp_path, disk)
    witness = Witness(log)
    for frame in frames_after(log, 150):
        log.append([frame])
    await witness.all_durable()
    await log._sealer.drain()
    disk.held = threading.Event()
    count = len(log._files.segments)
    while len(log._files.segments) == count:
        log.append(frames_after(log, 1))
    await witness.all_durable()
    await log.trim(TrimPoint(log.last, log.state.next_index))  # what lies before is being sealed: it stays
    closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    collect = log._sealer._on_sealed
    assert collect is not None

    def sealed() -> None:
        asyncio.create_task(log.close()).add_done_callback(lambda _: closing.set_result(None))
        collect()

    log._sealer._on_sealed = sealed
    disk.held.set()
    await closing
    assert log._collector._under_way is None

"""Two copies, one writer at a time."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from dledger.disk.disk import OsDisk
from dledger.disk.record import RecordKind
from dledger.disk.syncer import Handle
from dledger.disk.two_slot import TwoSlotFile


class LateDisk(OsDisk):
    """A job waits for its turn, as behind others in the executor."""

    def __init__(self) -> None:
        super().__init__()
        self.may_open = threading.Event()
        self.may_open.set()
        self.waits = threading.Event()

    def open(self, path: str, *, create: bool = False, exclusive: bool = False, read_only: bool = False) -> Handle:
        self.waits.set()
        self.may_open.wait(10)
        return super().open(path, create=create, exclusive=exclusive, read_only=read_only)


async def stored(path: str) -> bytes:
    slots = TwoSlotFile(OsDisk(), path, RecordKind.HARD_STATE)
    assert await slots.load()
    return slots.payload


async def test_what_is_saved_after_a_save_that_was_given_up_is_what_stays(tmp_path: Path) -> None:
    disk, path = LateDisk(), str(tmp_path / "slots")
    slots = TwoSlotFile(disk, path, RecordKind.HARD_STATE)
    await slots.create(b"earlier")
    disk.may_open.clear()
    disk.waits.clear()
    given_up = asyncio.ensure_future(slots.save(b"given up"))
    assert await asyncio.to_thread(disk.waits.wait, 10)
    given_up.cancel()
    saving = asyncio.ensure_future(slots.save(b"earlier"))
    await asyncio.sleep(0.05)
    disk.may_open.set()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    await saving
    await asyncio.to_thread(disk.shutdown)
    assert await stored(path) == b"earlier"

"""Promises survive a crash at any write, and are never made up."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dledger.common.errors import Code, CorruptLog, DLedgerError
from dledger.common.types import NodeId, Term
from dledger.disk.disk import OsDisk
from dledger.disk.syncer import Handle
from dledger.disk.two_slot import SLOT_BYTES
from dledger.group.hard_state import HardState, HardStateStore
from tests.unit.log.harness import FullDisk

FIRST = HardState(Term(3), NodeId("n1"))
SECOND = HardState(Term(4), NodeId("n2"))


async def saved(directory: Path, *states: HardState) -> Path:
    store = await HardStateStore.open(OsDisk(), directory)
    for state in states:
        await store.save(state)
    return directory / "hard_state"


async def reopened(directory: Path) -> HardState:
    return (await HardStateStore.open(OsDisk(), directory)).state


async def test_a_new_directory_has_promised_nothing(tmp_path: Path) -> None:
    assert await reopened(tmp_path / "new") == HardState(Term(0), NodeId(""))


async def test_what_was_saved_is_there_after_a_restart(tmp_path: Path) -> None:
    await saved(tmp_path, FIRST, SECOND)
    assert await reopened(tmp_path) == SECOND


@pytest.mark.parametrize("slot", [0, 1])
async def test_one_damaged_copy_is_repaired_from_the_other(tmp_path: Path, slot: int) -> None:
    path = await saved(tmp_path, FIRST)
    whole = path.read_bytes()
    damaged = bytearray(whole)
    damaged[slot * SLOT_BYTES + 26] ^= 1
    path.write_bytes(damaged)
    assert await reopened(tmp_path) == FIRST
    assert path.read_bytes() == whole


async def test_what_is_stored_in_both_slots_is_not_written_again(tmp_path: Path) -> None:
    path = await saved(tmp_path, FIRST)
    before = path.read_bytes()
    await saved(tmp_path, FIRST)
    assert path.read_bytes() == before


async def test_what_failed_is_written_again_though_it_is_the_same(tmp_path: Path) -> None:
    disk = FullDisk()
    store = await HardStateStore.open(disk, tmp_path)
    disk.is_full = True
    for _ in range(2):
        with pytest.raises(DLedgerError):
            await store.save(FIRST)
    disk.is_full = False
    await store.save(FIRST)
    assert await reopened(tmp_path) == FIRST


class DeafDisk(OsDisk):
    """It can be read, and not be made to keep anything."""

    def fdatasync(self, handle: Handle) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def fsync_directory(self, path: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("is_new", [True, False])
async def test_a_disk_that_fails_at_the_start_is_a_disk_error(tmp_path: Path, is_new: bool) -> None:
    if not is_new:
        path = await saved(tmp_path / "group", FIRST)
        path.write_bytes(bytes(SLOT_BYTES) + path.read_bytes()[SLOT_BYTES:])
    with pytest.raises(DLedgerError, match="Input/output error") as refused:
        await HardStateStore.open(DeafDisk(), tmp_path / "group")
    assert refused.value.code is Code.DISK_ERROR


@pytest.mark.parametrize("torn_at", range(0, 48, 7))
async def test_a_save_torn_in_the_first_slot_leaves_the_promise_before(tmp_path: Path, torn_at: int) -> None:
    path = await saved(tmp_path, FIRST)
    before = path.read_bytes()
    await saved(tmp_path, SECOND)
    after = path.read_bytes()
    path.write_bytes(after[:torn_at] + before[torn_at:])
    assert await reopened(tmp_path) in (FIRST, SECOND)


async def test_a_save_that_ended_after_the_first_slot_counts(tmp_path: Path) -> None:
    path = await saved(tmp_path, FIRST)
    before = path.read_bytes()
    await saved(tmp_path, SECOND)
    path.write_bytes(path.read_bytes()[:SLOT_BYTES] + before[SLOT_BYTES:])
    assert await reopened(tmp_path) == SECOND


async def test_without_a_good_copy_the_node_does_not_start(tmp_path: Path) -> None:
    path = await saved(tmp_path, FIRST)
    path.write_bytes(os.urandom(2 * SLOT_BYTES))
    with pytest.raises(CorruptLog):
        await reopened(tmp_path)


async def test_a_log_without_its_hard_state_is_damaged_not_new(tmp_path: Path) -> None:
    (tmp_path / "x.log").touch()
    with pytest.raises(CorruptLog):
        await reopened(tmp_path)

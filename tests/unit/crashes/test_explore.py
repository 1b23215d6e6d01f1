"""A power cut at any call is survived; and whoever breaks a rule of the disk is found out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dledger.disk.disk import Disk
from dledger.disk.group_commit import GroupCommit
from dledger.disk.record import pack_record
from dledger.disk.syncer import Handle
from dledger.disk.two_slot import TwoSlotFile
from dledger.log import cut as cutting
from dledger.log import file_log, log_opening
from dledger.log.damage import damage_inspector
from dledger.log.frame.frame import Frame
from dledger.log.segment.damage import Hole
from dledger.log.segment.segment import Segment
from dledger.log.segment.segment_files import SegmentFiles
from tests.crashes.explore import explore, explore_kills, explore_recovery
from tests.crashes.medium import Depth, RecordedPlatter, RecordingDisk
from tests.crashes.scenarios import SCENARIOS
from tests.simulation.platter import SECTOR_BYTES, Captured, SimFile

SHALLOW = Depth(exhaustive_up_to=5, samples=4)
A, B = b"a" * SECTOR_BYTES, b"b" * SECTOR_BYTES


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_power_cut_at_any_call_takes_nothing_that_was_promised(name: str) -> None:
    tally = explore(name, SHALLOW)
    assert tally.failures == []
    assert tally.points > 2 * tally.calls
    assert tally.starts > tally.calls


@pytest.mark.parametrize("name", ["roll", "truncate-across", "reset", "repair"])
def test_a_power_cut_during_a_recovery_takes_nothing_that_was_promised(name: str) -> None:
    tally = explore_recovery(name, SHALLOW, every=12)
    assert tally.failures == []
    assert tally.starts > 20


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_a_killed_process_left_in_the_page_cache_is_not_taken_for_durable(name: str) -> None:
    tally = explore_kills(name, SHALLOW, every={"first-starts": 50, "truncate": 1}.get(name, 8))
    assert tally.failures == []
    assert tally.starts > 10


@pytest.mark.parametrize(
    ("name", "every", "believed"),
    [
        pytest.param("trim", 1, (log_opening, "_settle_beginning"), id="that the log begins later"),
        pytest.param("vote", 1, (TwoSlotFile, "_settle"), id="a vote"),
    ],
)
def test_a_start_that_believes_the_page_cache_is_found_out(
    monkeypatch: pytest.MonkeyPatch, name: str, every: int, believed: tuple[object, str]
) -> None:
    monkeypatch.setattr(*believed, lambda *_: None)
    assert explore_kills(name, SHALLOW, every=every).failures


def test_every_subset_of_what_is_pending_is_an_outcome() -> None:
    platter = RecordedPlatter()
    disk = RecordingDisk(platter)
    disk.mkdir("/d")
    handle = disk.open("/d/f", create=True)
    disk.pwritev(handle, [A * 3], 0)
    disk.fdatasync(handle)
    disk.fsync_directory("/d")
    disk.pwritev(handle, [B * 3], 0)
    images = {image.files[0][1] for image in platter.shot().images(Depth(8, 0), platter.random)}
    whole = {x + y + z for x in (A, B) for y in (A, B) for z in (A, B)}
    assert whole < images
    assert any(A[:256] in image[:512] and B[:256] in image[:512] for image in images), "a sector is torn, too"


def test_what_was_cut_away_before_a_sync_is_in_no_outcome() -> None:
    platter = RecordedPlatter()
    disk = RecordingDisk(platter)
    handle = disk.open("/f", create=True)
    disk.fsync_directory("/")
    disk.pwritev(handle, [A * 4], 0)
    disk.ftruncate(handle, 0)
    disk.pwritev(handle, [B], 0)
    before = {image.files[0][1] for image in platter.shot().images(Depth(10, 0), platter.random)}
    disk.fdatasync(handle)
    after = {image.files[0][1] for image in platter.shot().images(Depth(10, 0), platter.random)}
    assert len(before) > 1
    assert after == {B}


def test_a_sector_written_twice_may_hold_what_it_held_before_between_or_after() -> None:
    platter = RecordedPlatter()
    disk = RecordingDisk(platter)
    handle = disk.open("/f", create=True)
    disk.ftruncate(handle, SECTOR_BYTES)
    disk.fdatasync(handle)
    disk.fsync_directory("/")
    disk.pwritev(handle, [A], 0)
    disk.pwritev(handle, [B], 0)
    images = {image.files[0][1] for image in platter.shot().images(Depth(8, 0), platter.random)}
    assert {bytes(SECTOR_BYTES), A, B} <= images


def forget_syncs(patch: pytest.MonkeyPatch) -> None:
    def settle_only(_: RecordingDisk, file: SimFile, sectors: Captured) -> None:
        file.settle(sectors)

    patch.setattr(RecordingDisk, "sync_file", settle_only)


def forget_directories(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecordingDisk, "fsync_directory", lambda _disk, _path: None)


def leave_the_mark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cutting, "write_mark", lambda *_arguments, **_named: None)


def leave_the_trailer(patch: pytest.MonkeyPatch) -> None:
    def open_only(files: SegmentFiles, segment: Segment) -> None:
        files.open(segment)
        segment.sealed = False

    patch.setattr(SegmentFiles, "unseal", open_only)


def leave_what_was_cut(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(cutting, "zero", lambda *_arguments: None)


def leave_unsynced_what_stays(patch: pytest.MonkeyPatch) -> None:
    def forgetful(*arguments: Any, **named: Any) -> None:
        cutting.cut(*arguments, **{**named, "unsynced": ()})

    patch.setattr(file_log, "cut", forgetful)


def leave_unsynced_what_is_written_back(patch: pytest.MonkeyPatch) -> None:
    def forgetful(disk: Disk, hole: Hole, offset: int, frames: Sequence[Frame]) -> None:
        handle = disk.open(hole.segment.path)
        disk.pwritev(handle, [frame.raw for frame in frames], offset)
        disk.close(handle)

    patch.setattr(damage_inspector, "write_back", forgetful)


def save_both_slots_at_once(patch: pytest.MonkeyPatch) -> None:
    write = TwoSlotFile._write_slot

    def unsynced(slots: TwoSlotFile, handle: Handle, slot: int) -> None:
        if slot == 1:
            write(slots, handle, slot)
            return
        record = pack_record(slots._kind, slots._sequence, slots.payload)
        slots._disk.pwritev(handle, [record], 0)

    patch.setattr(TwoSlotFile, "_write_slot", unsynced)


def mark_what_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    write = GroupCommit._write_mark

    def early(commit: GroupCommit[Any, Any], *, clean: bool) -> bool:
        synced, commit._synced = commit._synced, commit._end
        written = write(commit, clean=clean)
        commit._synced = commit._marked = synced
        return written

    patch.setattr(GroupCommit, "_write_mark", early)
    patch.setattr(GroupCommit, "_owes_mark", lambda _commit: True)


@pytest.mark.parametrize(
    ("bug", "name"),
    [
        (forget_syncs, "append"),
        (forget_directories, "roll"),
        (leave_the_mark, "truncate"),
        (leave_the_trailer, "truncate-across"),
        (leave_what_was_cut, "truncate"),
        (leave_unsynced_what_stays, "truncate-unsynced"),
        (leave_unsynced_what_is_written_back, "repair"),
        (save_both_slots_at_once, "vote"),
        (mark_what_is_not_synced, "append-large"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_broken_rule_is_found_out(
    monkeypatch: pytest.MonkeyPatch, bug: Callable[[pytest.MonkeyPatch], None], name: str
) -> None:
    bug(monkeypatch)
    assert explore(name, SHALLOW).failures

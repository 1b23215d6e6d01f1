"""Opening a log: damage explained by a crash is cut off; any other damage is rot and stops the start.

The durable part of a log reaches up to the newest sync mark, and over every sealed segment. (A trailer is written only
when the next segment is durable.) A bad frame, first page or file in that part was good once. The start is refused with
CORRUPT_LOG, and nothing is changed. Behind that part, the log ends before the first bad frame, and the rest is zeroed.

A frame, a record or a segment of a newer format version is neither torn nor rotten. The start is refused with
UNSUPPORTED_VERSION, and nothing is changed.

What a crash leaves in the middle of …
* a write: bad frames behind the mark. The log is cut before the first one.
* a roll: an old segment that is not sealed, and a new one that may lack its first page or its small state. A segment
  without a first page is removed. A missing small state is replayed from the one before.
* a seal: a footer without its trailer, behind the segment's last frame. It is written again.
* a prepare: a file without a segment's name. It is removed.
* a truncation: a log with some of the frames that were to go (cut.py).
* a trim or a reset: older segments. The segment that the log begins with says so before they go. They are removed once
  that word is surely on the disk.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from dledger.common.config import Limits, Timings
from dledger.common.errors import Code, CorruptLog, error
from dledger.common.types import GENESIS, Durability, Member, TrimPoint
from dledger.disk.disk import FULL, Disk, make_directories
from dledger.disk.record import in_file
from dledger.disk.reserve import Reserve
from dledger.log.cut import cut, torn_bytes
from dledger.log.file_log import FileLog
from dledger.log.frame.log_snapshot import LogSnapshot
from dledger.log.recovery.first_page import restore_headers
from dledger.log.recovery.inventory import Durable, take_inventory
from dledger.log.recovery.report import RecoveryReport
from dledger.log.recovery.tail_replay import Replay, ReplayedSegment
from dledger.log.segment.index import SparseIndex
from dledger.log.segment.segment import (
    FIRST_PAGE_BYTES,
    PREPARED_SUFFIX,
    TEMPORARY_SUFFIX,
    Segment,
    SegmentHeader,
    corrupt,
    parse_name,
    write_mark,
    write_origin,
)
from dledger.log.segment.segment_files import SegmentFiles
from dledger.log.segment.snapshot_file import has_good_state, keep_twice, write_state
from dledger.log.segment.writer import first_segment_bytes

logger = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 20


class _Recovered(NamedTuple):
    state: LogSnapshot
    commit_hint: int
    report: RecoveryReport


async def open_log(
    disk: Disk,
    directory: Path,
    group: str,
    *,
    durability: Durability,
    limits: Limits,
    timings: Timings,
    initial_members: Sequence[Member],
    reserve: Reserve,
    must_exist: bool = False,
) -> FileLog:
    """The log of ``group`` in ``directory``, made when there is none, unless it ``must_exist``; everything it holds is
    durable. ``reserve`` is the one of the directory's file system.

    Raises CORRUPT_LOG (rot, a missing file, another group's segment; it names the file and the offset, and nothing was
    changed), UNSUPPORTED_VERSION, DISK_FULL and DISK_ERROR.
    """
    files = SegmentFiles(disk, directory, group)
    try:
        recovered = await disk.run(partial(_open, files, limits, tuple(initial_members), must_exist=must_exist))
    except OSError as reason:
        files.close_all()
        code = Code.DISK_FULL if reason.errno in FULL else Code.DISK_ERROR
        raise error(code, f"the log in {directory} cannot be opened: {reason.strerror}") from reason
    except BaseException:
        files.close_all()
        raise
    recovered.state.readdress(initial_members)
    return FileLog(
        files,
        recovered.state,
        durability=durability,
        limits=limits,
        timings=timings,
        initial_members=initial_members,
        commit_hint=recovered.commit_hint,
        recovery=recovered.report,
        reserve=reserve,
    )


def _open(files: SegmentFiles, limits: Limits, members: Sequence[Member], *, must_exist: bool) -> _Recovered:
    make_directories(files.disk, files.directory)
    names = files.disk.listdir(str(files.directory))
    if not any(parse_name(name) for name in names):
        if must_exist:
            raise corrupt(str(files.directory), 0, "it had a log, and has none")
        _remove_leftovers(files, names)
        return _create(files, limits, members)
    restore_headers(files, names)
    durable = take_inventory(files, names)
    _check_beginning(files)
    recovered = _recover(files, durable, members)
    keep_twice(files.disk, files.segments[0])
    _settle_beginning(files, names)
    _remove_leftovers(files, files.disk.listdir(str(files.directory)))
    return recovered


def _check_beginning(files: SegmentFiles) -> None:
    """Raises CORRUPT_LOG unless a copy of the small state that the log begins with is good. A newer small state would
    do to open the log. But a leader has to send this one to a follower that is reset."""
    first = files.segments[0]
    if first.previous != GENESIS and not has_good_state(files.disk, first):
        raise corrupt(first.state_path, 0, "no copy of the small state that the log begins with is good")


def _settle_beginning(files: SegmentFiles, names: Sequence[str]) -> None:
    """Syncs the origin of the first segment if older files are still there. After a killed trim, or a failed sync, only
    the page cache may hold that origin. The disk must hold it before older segments are removed."""
    first = files.segments[0]
    if any(name is not None and name < first.name for name in map(parse_name, names)):
        write_origin(files.disk, first)


def _create(files: SegmentFiles, limits: Limits, members: Sequence[Member]) -> _Recovered:
    state = LogSnapshot(files.group, members)
    size_bytes = first_segment_bytes(limits)
    path, handle = files.make(size_bytes)
    files.disk.pwritev(handle, [bytes(size_bytes)], 0)  # room that was written before is cheaper to sync
    segment = files.adopt(path, handle, SegmentHeader(files.group, 0, GENESIS), 0, durable=True)
    files.segments.append(segment)
    write_state(files.disk, segment.state_path, state.encode())  # syncs the directory too
    segment.has_state = True
    return _Recovered(state, 0, RecoveryReport(clean_stop=True, torn_bytes=0, frames_replayed=0))


def _remove_leftovers(files: SegmentFiles, names: Sequence[str]) -> None:
    """Removes files that a crash left before they had a meaning, or after, and small states without a segment."""
    known = {each.name for each in files.segments}
    for name in names:
        segment_name = parse_name(name)
        orphan = segment_name is not None and segment_name not in known
        if orphan or name.endswith((PREPARED_SUFFIX, TEMPORARY_SUFFIX)):
            files.disk.unlink(str(files.directory / name))


def _recover(files: SegmentFiles, durable: Durable, members: Sequence[Member]) -> _Recovered:
    if not durable.clean:
        # A failed sync leaves pages that look clean and never reached the disk: what counts is what the disk has.
        for segment in files.segments[durable.ordinal :]:
            files.disk.drop_cache(files.open(segment))
    replay = Replay(files, durable.ordinal, members, watch=durable.point.position)
    replay.run()
    _check_durable(files, durable, replay)
    state, end = replay.state, replay.end
    first = files.segments[0]
    state.begin_at(TrimPoint(first.previous, first.name.base_index))
    clean = durable.clean and state.last == durable.point and end.segment is files.active
    torn = 0
    hint = max(min(durable.commit_hint, state.last.position), state.start.position)
    if not clean:
        torn = _cut_tail(files, durable, replay, hint)
    else:
        # Small states that were renamed behind the clean mark may have their names in the page cache alone.
        files.disk.fsync_directory(str(files.directory))
        handle = files.open(end.segment)
        files.disk.fdatasync(handle)  # the mark may be in the page cache alone, and a clean stop is told by it
        write_mark(files.disk, end.segment, state.last, end.end_offset, hint, clean=False)
        files.disk.fdatasync(handle)
    _settle_segments(files, replay)
    report = RecoveryReport(clean, torn, replay.frames)
    logger.info("log opened", extra={"group": files.group, "last": state.last.position, **report._asdict()})
    return _Recovered(state, hint, report)


def _check_durable(files: SegmentFiles, durable: Durable, replay: Replay) -> None:
    state, end = replay.state, replay.end
    if state.last.position < durable.point.position:
        reason = end.reason or "frames are missing"
        raise corrupt(end.segment.path, end.end_offset, f"{reason}; it was durable up to {durable.point.position}")
    if replay.watched != durable.point:
        segment = files.segments[durable.ordinal]
        raise corrupt(segment.path, durable.offset, f"frame {durable.point.position} is not the one that was synced")


def _cut_tail(files: SegmentFiles, durable: Durable, replay: Replay, hint: int) -> int:
    """Makes what was read durable for certain, and cuts the rest. Returns how many bytes were no frames."""
    disk, end = files.disk, replay.end
    with in_file(end.segment.path):
        torn = torn_bytes(disk, files.open(end.segment), end.end_offset, end.segment.size_bytes)
    for segment in files.segments[files.segments.index(end.segment) + 1 :]:
        with in_file(segment.path):
            torn += torn_bytes(disk, files.open(segment), FIRST_PAGE_BYTES, segment.size_bytes)
    for each in replay.replayed:
        if files.segments.index(each.segment) >= durable.ordinal:
            _rewrite(files, durable, each)
    cut(files, end.segment, end.end_offset, replay.state.last, commit_hint=hint)
    return torn


def _rewrite(files: SegmentFiles, durable: Durable, replayed: ReplayedSegment) -> None:
    segment = replayed.segment
    handle = files.open(segment)
    start = durable.offset if segment is files.segments[durable.ordinal] else 0
    for offset in range(start, replayed.end_offset, _CHUNK_BYTES):
        chunk = files.disk.pread(handle, min(_CHUNK_BYTES, replayed.end_offset - offset), offset)
        files.disk.pwritev(handle, [chunk], offset)
    files.disk.fdatasync(handle)


def _settle_segments(files: SegmentFiles, replay: Replay) -> None:
    """Notes each segment's end, if it is not sealed, and its index."""
    for each in replay.replayed:
        if each.segment in files.segments and not each.segment.sealed:
            segment = each.segment
            segment.index, segment.frames, segment.end_offset = each.sparse_index, each.frames, each.end_offset
    for segment in files.segments[:-1]:
        if not segment.sealed and segment.index is None:
            segment.index = _load_index(files, segment)
    assert isinstance(files.active.index, SparseIndex)


def _load_index(files: SegmentFiles, segment: Segment) -> SparseIndex:
    """Of a segment that the replay did not come to. What it lacks does not keep the log from being opened."""
    try:
        return files.load_index(segment, files.open(segment))
    except CorruptLog:
        reach = files.reach_of(segment, segment.previous, 0)
        files.damage.found(segment, files.look(segment, reach))
        return files.load_index(segment, files.open(segment))

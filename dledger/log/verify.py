"""Every frame of one node's files, checked in place: for ``dledger log verify`` and ``dledger log dump``.

Read-only, also beside a live node. Its log grows, rolls and may be truncated meanwhile, so a bad place is looked at
again before it is called bad.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dledger.common.batch import records_of
from dledger.common.errors import Code, DLedgerError, error, quoted
from dledger.common.types import DEFAULT_GROUP, GENESIS, LogPoint, is_key_of, name_in
from dledger.disk.disk import Disk, OsDisk
from dledger.disk.record import in_file
from dledger.log.cut import torn_bytes
from dledger.log.frame.control import check_control
from dledger.log.frame.frame import ControlKind, Frame, FrameHeader, check_frame_body
from dledger.log.recovery.inventory import Durable, take_inventory
from dledger.log.segment.segment import FIRST_PAGE_BYTES, SEGMENT_SUFFIX, Segment, corrupt, parse_name, unpack_header
from dledger.log.segment.segment_files import SegmentFiles
from dledger.log.segment.snapshot_file import has_good_state

_ATTEMPTS = 3
NAMES_SHOWN = 10


@dataclass(frozen=True, slots=True)
class BadPlace:
    """A place at which the stored bytes differ from the written ones."""

    file: str
    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What a log's files hold, up to the first bad place."""

    ok: bool
    """No rot. A torn tail, which a crash leaves and the next start cuts, is none."""
    frames: int
    records: int
    first_index: int
    last_index: int
    """−1: no record."""
    chain: str
    """Of the last good frame, in hexadecimal: equal to another node's at the same position iff the logs are."""
    torn_tail_bytes: int
    bad: BadPlace | None

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        bad = self.bad
        return {
            "ok": self.ok,
            "frames": self.frames,
            "records": self.records,
            "first_index": self.first_index,
            "last_index": self.last_index,
            "chain": self.chain,
            "torn_tail_bytes": self.torn_tail_bytes,
            "bad": {"file": bad.file, "offset": bad.offset, "reason": bad.reason} if bad is not None else None,
        }


def verify(directory: Path, group: str = DEFAULT_GROUP) -> VerifyReport:
    """Checks every frame of ``group`` in ``directory``, a node's data directory or a group's own. Raises
    UNSUPPORTED_VERSION for files of a newer program, and CONFIG_ERROR if the log of ``group`` is not there."""
    directory = find_log(directory, group)
    disk = OsDisk()
    for _ in range(_ATTEMPTS):
        verifier = _Verifier(disk, directory)
        try:
            report = verifier.run()
        except FileNotFoundError:  # truncated, or trimmed, under our eyes
            continue
        if report.ok:
            return report
    return _Verifier(disk, directory).run()


def dump(directory: Path, start: int = 0, group: str = DEFAULT_GROUP) -> Iterator[str]:
    """A line for each frame from the one that holds record ``start`` on. Raises CONFIG_ERROR, and CORRUPT_LOG if the
    files are not good."""
    verifier = _Verifier(OsDisk(), find_log(directory, group))
    for frame in verifier.frames():
        if frame.header.end_index > start or start == 0:
            yield _line(frame.header)


def dump_records(directory: Path, start: int = 0, group: str = DEFAULT_GROUP) -> Iterator[bytes]:
    """Each record from ``start`` on. Raises as ``dump`` does."""
    verifier = _Verifier(OsDisk(), find_log(directory, group))
    for frame in verifier.frames():
        header = frame.header
        if header.count and header.end_index > start:
            yield from records_of(frame.body, header.count)[max(0, start - header.base_index) :]


def find_log(directory: Path, group: str = DEFAULT_GROUP) -> Path:
    """The directory of ``group`` in ``directory``, a node's; or ``directory`` itself, where a log lies in it. Raises
    CONFIG_ERROR."""
    if _has_segments(directory):
        return directory
    groups = sorted(each for each in directory.glob("groups/*") if _has_segments(each))
    wanted = [each for each in groups if is_key_of(each.name, group)]
    if len(wanted) == 1:
        return wanted[0]
    if not groups:
        raise error(Code.CONFIG_ERROR, f"{directory} holds no log: name a node's data directory")
    if wanted:
        names = ", ".join(map(str, wanted))
        raise error(Code.CONFIG_ERROR, f"{directory} holds several groups of that name: name one of {names}")
    names = some_of(sorted({name_in(each.name) for each in groups}))
    raise error(Code.CONFIG_ERROR, f"{directory} holds no group {quoted(group)}: name one of {names}")


def some_of(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _has_segments(directory: Path) -> bool:
    return directory.is_dir() and any(parse_name(each.name) for each in directory.glob("*" + SEGMENT_SUFFIX))


class _Verifier:
    """One pass over the frames."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._files = SegmentFiles(disk, directory, "")
        self._durable: Durable | None = None
        self._last: LogPoint | None = None
        self._frames = 0
        self._first_index = 0
        self._next_index = 0
        self._torn_bytes = 0

    def run(self) -> VerifyReport:
        bad = None
        try:
            for _ in self.frames():
                self._frames += 1
            self._check_start()
        except DLedgerError as reason:
            place = reason.metadata
            if "file" not in place:
                raise
            bad = BadPlace(place["file"], int(place["offset"]), place["reason"])
        return VerifyReport(
            ok=bad is None,
            frames=self._frames,
            records=self._next_index - self._first_index,
            first_index=self._first_index,
            last_index=self._next_index - 1,
            chain=f"{self._last.chain if self._last is not None else 0:016x}",
            torn_tail_bytes=self._torn_bytes,
            bad=bad,
        )

    def _check_start(self) -> None:
        first = self._files.segments[0]
        if first.previous != GENESIS and not has_good_state(self._disk, first):
            # Frames would have to be read from the log's very beginning to know it, and they are gone.
            raise corrupt(first.state_path, 0, "the small state that the log begins with is missing or damaged")

    def frames(self) -> Iterator[Frame]:
        """The good frames, in order. Raises CORRUPT_LOG at the first bad frame that no crash explains."""
        files = self._files
        names = self._disk.listdir(str(files.directory))
        files.group = group_of(self._disk, files.directory, names)
        self._durable = take_inventory(files, names)
        first = files.segments[0]
        self._last = first.previous
        self._first_index = self._next_index = first.name.base_index
        for ordinal, segment in enumerate(files.segments):
            if segment.previous != self._last:
                # Behind what is durable: the segments of a roll that a crash cut short.
                self._torn_bytes += sum(map(self._torn_in, files.segments[ordinal:]))
                return
            yield from self._frames_of(segment, is_last=segment is files.active)

    def _frames_of(self, segment: Segment, *, is_last: bool) -> Iterator[Frame]:
        assert self._durable is not None
        handle = self._disk.open(segment.path, read_only=True)
        try:
            segment.size_bytes = self._disk.size(handle)
            scanner = self._files.scanner(segment, handle)
            for offset, frame in scanner:
                _check_body(segment, offset, frame)
                self._last, self._next_index = frame.header.point, frame.header.end_index
                if self._last.position == self._durable.point.position and self._last != self._durable.point:
                    raise corrupt(segment.path, offset, "it is not the frame that was synced")
                yield frame
            follows = self._files.after(segment)
            if follows is not None and follows.previous == self._last:
                return
            if scanner.previous.position < self._durable.point.position:
                raise corrupt(segment.path, scanner.offset, scanner.reason or "frames are missing")
            if is_last or scanner.reason:
                self._torn_bytes += torn_bytes(self._disk, handle, scanner.offset, self._disk.size(handle))
        finally:
            self._disk.close(handle)

    def _torn_in(self, segment: Segment) -> int:
        handle = self._disk.open(segment.path, read_only=True)
        try:
            return torn_bytes(self._disk, handle, FIRST_PAGE_BYTES, self._disk.size(handle))
        finally:
            self._disk.close(handle)


def group_of(disk: Disk, directory: Path, names: list[str]) -> str:
    """The group of the log, from its first segment. If that cannot be read, the directory's name: the error is found
    out later."""
    first = min(name for name in names if name.endswith(SEGMENT_SUFFIX) and parse_name(name))
    handle = disk.open(str(directory / first), read_only=True)
    try:
        with in_file(str(directory / first)):
            header = unpack_header(disk.pread(handle, FIRST_PAGE_BYTES, 0))
    finally:
        disk.close(handle)
    return header.group if header is not None else directory.name


def _check_body(segment: Segment, offset: int, frame: Frame) -> None:
    try:
        if frame.header.count:
            check_frame_body(frame, max_record_bytes=frame.header.frame_len)
        else:
            check_control(frame)
    except DLedgerError as bad:
        raise corrupt(segment.path, offset, bad) from bad


def _line(header: FrameHeader) -> str:
    if header.count:
        records = f"{header.base_index}" if header.count == 1 else f"{header.base_index}:{header.end_index}"
        what = f"records={records}"
        if header.producer_id:
            what += f" producer={header.producer_id}/{header.producer_epoch} sequence={header.base_sequence}"
    else:
        what = ControlKind(header.control_kind).name.lower()
    time = datetime.fromtimestamp(header.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")
    return (
        f"position={header.position} term={header.term} {what} time={time.removesuffix('+00:00')}Z "
        f"bytes={header.frame_len} chain={header.chain:016x}"
    )

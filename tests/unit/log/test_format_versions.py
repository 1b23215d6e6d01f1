"""What a newer program wrote is neither a torn tail nor rot: it is refused, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dledger.common.batch import crc32c
from dledger.common.errors import Code, CorruptLog, DLedgerError, NewerFormat
from dledger.common.types import GENESIS, Index, LogPoint, Position, TrimPoint
from dledger.disk.disk import OsDisk
from dledger.disk.record import RecordKind, pack_record, unpack_record
from dledger.disk.two_slot import TwoSlotFile
from dledger.log.copy import LogCopy
from dledger.log.damage.damaged_log import open_damaged
from dledger.log.frame.frame import Frame, chain_of, parse_frame, parse_header
from dledger.log.segment import segment as formats
from dledger.log.segment.segment import FIRST_PAGE_BYTES, SECTOR_BYTES, unpack_header, unpack_mark
from dledger.log.verify import verify
from tests.unit.log.harness import (
    MEMBERS,
    CarelessDisk,
    Witness,
    abandon,
    all_frames,
    data_frame,
    frames_after,
    open_at,
    opened,
    segments_of,
    write_log,
)


def of_version(version: int, frame: Frame, previous: LogPoint) -> bytes:
    """The frame as a program of that version would write it: checksums and chain are right."""
    raw = bytearray(frame.raw)
    raw[3] = version
    raw[80:88] = chain_of(previous.chain, raw[:88]).to_bytes(8, "little")
    raw[8:12] = crc32c(raw[12:88], crc32c(raw[:8])).to_bytes(4, "little")
    return bytes(raw)


def record_of_version(version: int, record: bytes) -> bytes:
    raw = bytearray(record)
    raw[3] = version
    raw[20:24] = crc32c(raw[24:], crc32c(raw[:20])).to_bytes(4, "little")
    return bytes(raw)


def content_of(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def put(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


async def refused(directory: Path, path: Path, version: int = 2) -> None:
    """A start says which file, and which version, and leaves everything as it is."""
    before = content_of(directory)
    for _ in range(2):
        with pytest.raises(NewerFormat, match=f"version {version}.*start the newer program") as refusal:
            await open_at(directory, CarelessDisk())
        assert refusal.value.code is Code.UNSUPPORTED_VERSION
        assert str(path) in str(refusal.value)
        assert content_of(directory) == before


async def with_a_newer_frame(directory: Path, version: int = 2) -> tuple[Path, int]:
    """Three frames that were acknowledged, the last one newer, behind the mark. Returns its file, and where it lies."""
    await write_log(directory, 2)
    log = await open_at(directory, CarelessDisk())
    (newer,) = frames_after(log, 1)
    (path,), offset, last = segments_of(directory), log._files.active.end_offset, log.last
    Witness(log)
    await abandon(log)
    put(path, offset, of_version(version, newer, last))
    return path, offset


async def test_an_acknowledged_frame_of_a_newer_program_is_not_cut_as_a_torn_tail(tmp_path: Path) -> None:
    path, _ = await with_a_newer_frame(tmp_path)
    await refused(tmp_path, path)


async def test_nor_where_its_body_is_torn(tmp_path: Path) -> None:
    path, offset = await with_a_newer_frame(tmp_path, version=3)
    put(path, offset + 88, bytes(100))
    await refused(tmp_path, path, 3)


async def test_a_torn_header_with_the_magic_of_a_newer_frame_is_cut(tmp_path: Path) -> None:
    path, offset = await with_a_newer_frame(tmp_path)
    put(path, offset + 20, b"\xff")
    async with opened(tmp_path, CarelessDisk()) as log:
        assert log.last.position == 2
        assert log.recovery.torn_bytes > 0


async def test_a_newer_frame_below_the_mark_is_not_called_rot(tmp_path: Path) -> None:
    log = await open_at(tmp_path, CarelessDisk())
    witness = Witness(log)
    for _ in range(3):
        log.append(frames_after(log, 1))
        await witness.all_durable()
        log.set_commit_hint(log.last.position)
    first, second, _ = await all_frames(log)
    (path,) = segments_of(tmp_path)
    newer = of_version(2, second, first.header.point)
    put(path, FIRST_PAGE_BYTES + first.header.stored_bytes, newer)
    log._cache.truncate(0)
    for read in (log.read(Position(2), 1), log.frame_of(Index(1))):
        with pytest.raises(NewerFormat, match=str(path)):
            await read
    assert not log.damaged()
    await log.close()
    await refused(tmp_path, path)
    for look in (lambda: verify(tmp_path), lambda: list(LogCopy(tmp_path).read(0, 1))):
        with pytest.raises(NewerFormat, match="version 2"):
            look()
    with pytest.raises(NewerFormat, match="version 2"):
        await open_damaged(
            CarelessDisk(), tmp_path, "default", members=MEMBERS, why=CorruptLog("", metadata={"file": str(path)})
        )


def test_a_frame_of_a_newer_program_is_told_from_rot_by_its_headers_checksum() -> None:
    frame = data_frame(GENESIS, 0)
    raw = of_version(2, frame, GENESIS)
    for parse in (parse_header, parse_frame):
        with pytest.raises(NewerFormat):
            parse(raw)
    for offset in (0, 1, 8, 9, 40, 87):
        rotten = bytearray(raw)
        rotten[offset] ^= 1
        with pytest.raises(CorruptLog):
            parse_header(rotten)
    with pytest.raises(CorruptLog):
        parse_header(of_version(0, frame, GENESIS))


def test_a_record_of_a_newer_program_is_told_from_rot_by_its_checksum() -> None:
    record = record_of_version(2, pack_record(RecordKind.SYNC_MARK, 5, b"payload"))
    for kind in (RecordKind.SYNC_MARK, RecordKind.FOOTER):
        with pytest.raises(NewerFormat):
            unpack_record(kind, record)
    for offset in (0, 4, 8, 20, 24):
        rotten = bytearray(record)
        rotten[offset] ^= 1
        assert unpack_record(RecordKind.SYNC_MARK, rotten) is None
    assert unpack_record(RecordKind.SYNC_MARK, record[:-1]) is None


@pytest.mark.parametrize("sector", range(5), ids=["header", "mark", "commit hint", "other mark", "origin"])
async def test_a_newer_record_in_a_first_page_is_refused(tmp_path: Path, sector: int) -> None:
    await write_log(tmp_path, 20)
    path = segments_of(tmp_path)[-1]
    put(path, sector * SECTOR_BYTES, record_of_version(2, pack_record(RecordKind.SYNC_MARK, 99, bytes(40))))
    await refused(tmp_path, path)


async def test_a_newer_small_state_is_refused(tmp_path: Path) -> None:
    await write_log(tmp_path, 20)
    (state,) = tmp_path.glob("*.state")
    state.write_bytes(record_of_version(2, state.read_bytes()))
    await refused(tmp_path, state)


async def test_newer_promises_are_refused_and_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "hard_state"
    slots = TwoSlotFile(CarelessDisk(), str(path), RecordKind.HARD_STATE)
    await slots.create(b"old")
    put(path, 0, record_of_version(2, pack_record(RecordKind.HARD_STATE, 2, b"new")))
    before = path.read_bytes()
    with pytest.raises(NewerFormat, match=str(path)):
        await TwoSlotFile(CarelessDisk(), str(path), RecordKind.HARD_STATE).load()
    assert path.read_bytes() == before


# A program of a newer version ------------------------------------------------------------------------------------


@pytest.fixture
def upgrade(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From then on this is the program of the next version."""
    return lambda: monkeypatch.setattr(formats, "FORMAT_VERSION", formats.FORMAT_VERSION + 1)


async def test_a_new_version_begins_a_segment_of_its_own_at_the_first_append(
    tmp_path: Path, upgrade: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    await write_log(tmp_path, 3)
    (old,) = segments_of(tmp_path)
    upgrade()
    async with opened(tmp_path, CarelessDisk()) as log:
        assert segments_of(tmp_path) == [old], "reading needs none"
        witness = Witness(log)
        for _ in range(3):
            log.append(frames_after(log, 1))
        await witness.all_durable()
        assert len(await all_frames(log)) == 6
    assert len(segments_of(tmp_path)) == 2, "and the one is enough"
    new = segments_of(tmp_path)[1]
    async with opened(tmp_path, CarelessDisk()) as log:
        log.append(frames_after(log, 1))
    assert segments_of(tmp_path) == [old, new]
    monkeypatch.undo()
    await refused(tmp_path, new)


async def test_an_empty_segment_is_taken_over_by_a_new_version(
    tmp_path: Path, upgrade: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, CarelessDisk()):
        pass
    upgrade()
    async with opened(tmp_path, CarelessDisk()) as log:
        witness = Witness(log)
        log.append(frames_after(log, 1))
        await witness.all_durable()
    (path,) = segments_of(tmp_path)
    page = path.read_bytes()[:FIRST_PAGE_BYTES]
    header = unpack_header(page)
    assert header is not None
    assert not header.is_outdated
    async with opened(tmp_path, CarelessDisk()) as log:
        assert log.last.position == 1
    monkeypatch.undo()
    await refused(tmp_path, path)


async def test_a_take_over_that_is_cut_short_leaves_a_log_that_opens(
    tmp_path: Path, upgrade: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, CarelessDisk()):
        pass
    upgrade()
    log = await open_at(tmp_path, CarelessDisk())
    Witness(log)
    (path,) = segments_of(tmp_path)

    def torn(_disk: object, file: str, _header: object) -> None:
        put(Path(file), 100, b"\xff" * 40)
        raise OSError(5, "the power went")

    with monkeypatch.context() as patch:
        patch.setattr("dledger.log.segment.writer.write_header", torn)
        with pytest.raises(DLedgerError):
            log.append(frames_after(log, 1))
    await abandon(log)
    put(path, 28, b"\xff" * 40)
    mark = unpack_mark(path.read_bytes()[:FIRST_PAGE_BYTES])
    assert mark is not None
    assert mark.point == GENESIS
    async with opened(tmp_path, CarelessDisk()) as log:
        log.append(frames_after(log, 1))


async def test_what_a_truncation_leaves_of_an_old_segment_is_not_written_on(
    tmp_path: Path, upgrade: Callable[[], None]
) -> None:
    await write_log(tmp_path, 3)
    upgrade()
    for after in (2, 0):
        async with opened(tmp_path, CarelessDisk()) as log:
            witness = Witness(log)
            log.append(frames_after(log, 2))
            await witness.all_durable()
            await log.truncate(Position(after))
            log.append(frames_after(log, 1))
            await witness.all_durable()
            assert not log._files.active.is_outdated
            assert log.last.position == after + 1


async def test_an_upgraded_log_can_be_trimmed_at_its_roll(tmp_path: Path, upgrade: Callable[[], None]) -> None:
    await write_log(tmp_path, 3)
    upgrade()
    async with opened(tmp_path, OsDisk()) as log:
        witness = Witness(log)
        log.append(frames_after(log, 1))
        await witness.all_durable()
        await log._sealer.drain()
        (boundary,) = log.boundaries()
        assert boundary.trim.point.position == 3
        await log.trim(TrimPoint(boundary.trim.point, boundary.trim.first_index))
        assert log.state.start.position == 3

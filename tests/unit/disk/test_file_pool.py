"""Open files of a directory: how many stay open, and that none is closed under its user."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from dledger.common.errors import Code, DLedgerError
from dledger.disk.disk import OsDisk
from dledger.disk.file_pool import FilePool
from dledger.disk.syncer import Handle


@dataclass
class File:
    path: str
    handle: Handle | None = None
    pins: int = 0
    closing: bool = False


@pytest.fixture
def files(tmp_path: Path) -> list[File]:
    for number in range(4):
        (tmp_path / str(number)).write_bytes(b"content")
    return [File(str(tmp_path / str(number))) for number in range(4)]


@pytest.fixture
def pool(tmp_path: Path) -> FilePool[File]:
    return FilePool(OsDisk(), str(tmp_path), most_idle=2)


def opened(files: list[File]) -> list[int]:
    return [number for number, file in enumerate(files) if file.handle is not None]


def test_the_least_recently_used_file_is_closed_first(pool: FilePool[File], files: list[File]) -> None:
    for number in (0, 1, 0, 2):
        pool.open(files[number], may_close=True)
    assert opened(files) == [0, 2]


def test_a_file_that_may_not_be_closed_stays_open_and_takes_no_place(pool: FilePool[File], files: list[File]) -> None:
    pool.open(files[0], may_close=False)
    for file in files[1:]:
        pool.open(file, may_close=True)
    assert opened(files) == [0, 2, 3]
    pool.keep_open(files[2])
    pool.open(files[1], may_close=True)
    assert opened(files) == [0, 1, 2, 3]


def test_a_pinned_file_is_closed_by_its_last_user(pool: FilePool[File], files: list[File]) -> None:
    handle = pool.pin(files[0], may_close=True)
    assert pool.pin(files[0], may_close=True) == handle
    for file in files[1:]:
        pool.open(file, may_close=True)
    pool.unpin(files[0])
    assert OsDisk().pread(handle, 7, 0) == b"content"
    pool.unpin(files[0])
    assert opened(files) == [2, 3]


def test_a_pool_that_is_shut_opens_nothing_and_what_is_open_is_of_use(pool: FilePool[File], files: list[File]) -> None:
    handle = pool.open(files[0], may_close=True)
    pool.shut()
    assert pool.open(files[0], may_close=True) == handle
    with pytest.raises(DLedgerError) as refusal:
        pool.open(files[1], may_close=True)
    assert refusal.value.code is Code.SHUTTING_DOWN
    pool.close(files[0])
    assert opened(files) == []


def test_a_reader_in_another_thread_has_a_handle_of_its_own(pool: FilePool[File], files: list[File]) -> None:
    with pool.reading(files[0]) as handle:
        assert OsDisk().pread(handle, 7, 0) == b"content"
    assert opened(files) == []

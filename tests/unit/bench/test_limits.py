"""Three synced copies that are kept: every byte is in one file, and little of them in the page cache."""

from __future__ import annotations

import errno
import os
import threading
from itertools import count
from pathlib import Path

import pytest

from bench.limits.three_copies import Kept, three_copies
from bench.work import MeasurementFailed

KIB = 1 << 10


class Small(Kept):
    file_bytes = 64 * KIB
    cached_bytes = 64 * KIB


class SmallOnAFullDisk(Small):
    """In a process of its own."""

    def __init__(self, path: Path) -> None:
        given = count()

        def fallocate(*_: object) -> None:
            if next(given) == 20:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        os.posix_fallocate = fallocate
        super().__init__(path)


@pytest.fixture
def dropped(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Descriptors whose pages were given up."""
    given_up: list[int] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda descriptor, *_: given_up.append(descriptor))
    return given_up


def written(files: Small, size_bytes: int) -> bytes:
    """Writes so much in pieces that fit no file, with a sync behind each."""
    data = os.urandom(size_bytes)
    at = 0
    while at < size_bytes:
        piece = data[at : at + 10_000]
        files.write(memoryview(piece), at)
        at += len(piece)
        files.sync()
    return data


def test_a_file_follows_another_and_none_is_written_twice(tmp_path: Path) -> None:
    data = written(Small(tmp_path / "copy"), 300_000)
    names = [tmp_path / f"copy.{number}" for number in range(5)]
    assert b"".join(name.read_bytes() for name in names)[: len(data)] == data


def test_what_lies_behind_leaves_the_page_cache_and_is_closed(
    tmp_path: Path, dropped: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[int] = []
    enough = threading.Event()

    def close(descriptor: int) -> None:
        closed.append(descriptor)
        if len(closed) == 3:
            enough.set()

    monkeypatch.setattr(os, "close", close)
    files = Small(tmp_path / "copy")
    written(files, 5 * Small.file_bytes - 1)
    assert enough.wait(10.0)
    assert dropped == closed
    assert len(files._synced) == 1, "as much as ours keeps behind the one that is written"
    monkeypatch.undo()
    for descriptor in closed:
        os.close(descriptor)


def test_files_are_as_large_as_our_segments() -> None:
    assert (Kept.file_bytes, Kept.cached_bytes) == (64 << 20, 64 << 20)


def test_a_copy_that_has_no_room_left_ends_the_measurement(tmp_path: Path) -> None:
    with pytest.raises(MeasurementFailed, match="has ended"):
        three_copies(tmp_path, 30, SmallOnAFullDisk)

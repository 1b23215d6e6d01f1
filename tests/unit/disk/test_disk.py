"""Directories that are durable, whoever made them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dledger.disk.disk import OsDisk, make_directories


class SyncedDirectories(OsDisk):
    """Which directories were synced, in order; ``forbidden`` is not to be opened."""

    def __init__(self, forbidden: Path | None = None) -> None:
        super().__init__()
        self.synced: list[Path] = []
        self._forbidden = forbidden

    def fsync_directory(self, path: str) -> None:
        if Path(path) == self._forbidden:
            raise PermissionError(path)
        self.synced.append(Path(path))
        super().fsync_directory(path)


def test_every_directory_that_is_made_is_named_durably(tmp_path: Path) -> None:
    disk = SyncedDirectories()
    make_directories(disk, tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert disk.synced == [tmp_path.parent, tmp_path, tmp_path / "a"]


def test_a_directory_that_a_killed_process_had_made_is_named_durably(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    disk = SyncedDirectories()
    make_directories(disk, tmp_path / "a")
    assert disk.synced == [tmp_path]


def test_what_lies_above_a_directory_that_is_there_need_not_be_readable(tmp_path: Path) -> None:
    make_directories(SyncedDirectories(forbidden=tmp_path.parent), tmp_path)


def test_what_lies_above_a_directory_that_is_made_has_to_be(tmp_path: Path) -> None:
    with pytest.raises(PermissionError):
        make_directories(SyncedDirectories(forbidden=tmp_path), tmp_path / "a")

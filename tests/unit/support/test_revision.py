"""What git says of a commit, and the seeds that come from its hash."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import revision
from tests.support.revision import FIXED_SEEDS, first_seed, origin

WHO = ("-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "commit.gpgsign=false")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit, which holds one file."""
    monkeypatch.setattr(revision, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2026-11-27T23:30:00-0100")
    git(tmp_path, "init", "--quiet")
    (tmp_path / "a file.py").write_text("a = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, *WHO, "commit", "--quiet", "-m", "x")
    return tmp_path


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def test_the_commit_is_named_in_twelve_digits(root: Path) -> None:
    assert revision.commit() == git(root, "rev-parse", "HEAD")[:12]


def test_the_files_of_a_commit_are_named_with_their_ids(root: Path) -> None:
    assert revision.blobs_of("HEAD") == {"a file.py": git(root, "rev-parse", "HEAD:a file.py")}
    assert revision.blobs_of("no-such-commit") is None


def test_what_is_not_committed_is_changed(root: Path) -> None:
    assert not revision.is_changed(root)
    (root / "b.py").write_text("")
    assert revision.is_changed(root)
    assert not revision.is_changed(root / "a file.py")


def test_the_day_of_the_last_commit_is_in_utc(root: Path) -> None:
    assert revision.day_of_the_last_commit_of(root / "a file.py") == "2026-11-28"
    assert revision.day_of_the_last_commit_of(root / "b.py") is None


@pytest.mark.usefixtures("root")
def test_without_git_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert (revision.commit(), revision.blobs_of("HEAD")) == (None, None)


def test_a_commit_has_seeds_of_its_own_and_always_the_same() -> None:
    assert first_seed("00000a27a84f") == first_seed("00000abbbbbb") == FIXED_SEEDS + 10
    assert first_seed("ffffff27a84f") == FIXED_SEEDS + 0xFFFFFF


def test_no_seed_of_a_commit_is_one_of_the_fixed() -> None:
    assert first_seed("000000000000") == FIXED_SEEDS
    assert first_seed(None) == FIXED_SEEDS


def test_where_seeds_come_from_is_said() -> None:
    assert origin("abc") == "from the hash of commit abc"
    assert origin(None) == "behind the fixed ones, as git names no commit"

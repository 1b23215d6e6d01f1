"""What git says of the commit that is checked out, and the seeds that come from its hash.

Every commit tries seeds of its own in CI, so that many commits try many. The same commit tries the same again.
"""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

from tests.support.sources import ROOT

FIXED_SEEDS = 100_000
"""Those below are of the long proofs, of tests and of bugs that were found: none of them comes from a commit."""
_DIGITS = 6


def commit() -> str | None:
    """The commit that is checked out, in 12 digits. None if git cannot say."""
    return _git("rev-parse", "--short=12", "HEAD")


def blobs_of(commit: str) -> dict[str, str] | None:
    """The blob id of each file of a commit, by its path. None if git does not know the commit."""
    listed = _git("ls-tree", "-r", "-z", "--end-of-options", commit)
    if listed is None:
        return None
    entries = (entry.split("\t", 1) for entry in listed.split("\0") if entry)
    return {path: about.split()[2] for about, path in entries}


def is_changed(path: Path) -> bool:
    """Whether something at or under ``path`` is not committed as it is. False if git cannot say."""
    return bool(_git("status", "--porcelain", "--", str(path)))


def day_of_the_last_commit_of(path: Path) -> str | None:
    """The day, in UTC, of the last commit that changed something at or under ``path``. None if there is none."""
    committed_s = _git("log", "-1", "--format=%ct", "--", str(path))
    return datetime.fromtimestamp(int(committed_s), UTC).date().isoformat() if committed_s else None


def first_seed(commit: str | None) -> int:
    """Where the seeds of a commit begin; without one, behind the fixed seeds."""
    return FIXED_SEEDS + (int(commit[:_DIGITS], 16) if commit else 0)


def origin(commit: str | None) -> str:
    """Where seeds come from, for a reader."""
    return f"from the hash of commit {commit}" if commit else "behind the fixed ones, as git names no commit"


def _git(*arguments: str) -> str | None:
    """What git printed. None if it failed, or is not installed."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()

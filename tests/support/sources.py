"""Names for sources as they are in the working tree, committed or not: the ids that git has for such files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha1
from pathlib import Path

ROOT = Path(__file__).parents[2]
APART = (ROOT / "dledger" / "spark", ROOT / "dledger" / "kernels")
"""They look at logs and histories from outside: what only starts nodes rests on them where it imports them, or not at
all."""
_FILE_MODE, _DIRECTORY_MODE = b"100644", b"40000"
"""Whether a file may be executed changes no name: no proof rests on it."""


def blobs(places: Iterable[Path]) -> dict[str, str]:
    """The files among ``places``, and the Python files under the directories among them, but for what stands APART.

    Each by its path below ROOT, with its blob id."""
    files = (file for place in places for file in (_under(place) if place.is_dir() else [place]))
    return {file.relative_to(ROOT).as_posix(): _blob(file, file.stat().st_mtime_ns) for file in files}


def tree(blobs: Mapping[str, str]) -> str:
    """The id of the git tree that holds these files and nothing else."""
    folders: dict[str, dict[str, str]] = {}
    entries: dict[bytes, bytes] = {}  # by what git sorts them by: a directory as if its name ended with a slash
    for path, blob in blobs.items():
        name, _, rest = path.partition("/")
        if rest:
            folders.setdefault(name, {})[rest] = blob
        else:
            entries[name.encode()] = _entry(_FILE_MODE, name, blob)
    for name, inside in folders.items():
        entries[f"{name}/".encode()] = _entry(_DIRECTORY_MODE, name, tree(inside))
    return _git_id(b"tree", b"".join(entries[key] for key in sorted(entries)))


def is_apart(file: Path) -> bool:
    return any(apart in file.parents for apart in APART)


def _under(directory: Path) -> list[Path]:
    return [file for file in sorted(directory.rglob("*.py")) if not is_apart(file)]


@cache
def _blob(file: Path, _changed_ns: int) -> str:
    return _git_id(b"blob", file.read_bytes())


def _entry(mode: bytes, name: str, git_id: str) -> bytes:
    return b"%s %s\0%s" % (mode, name.encode(), bytes.fromhex(git_id))


def _git_id(kind: bytes, content: bytes) -> str:
    """SHA-1, as git names objects. It tells changes apart, and keeps nobody out."""
    return sha1(b"%s %d\0%s" % (kind, len(content), content), usedforsecurity=False).hexdigest()

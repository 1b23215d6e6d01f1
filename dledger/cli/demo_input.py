"""The demo's input: every line of real files, read twice and never held as a whole."""

from __future__ import annotations

import platform
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dledger.cli.records import CHUNK_BYTES, LineSplitter
from dledger.common.errors import ConfigError

LISTS_AT_LEAST = 64
"""Even a small file comes in so many pieces, for there to be a half-way."""
NOT_PYTHONS_OWN = ("site-packages", "dist-packages")


@dataclass(frozen=True, slots=True)
class Source:
    """Files with the lines that become records, in this order."""

    title: str
    files: tuple[Path, ...]
    size_bytes: int

    def lines(self) -> Iterator[list[bytes]]:
        """Every line, in lists; split at \\n only, the newline not kept."""
        chunk_bytes = max(1, min(CHUNK_BYTES, self.size_bytes // LISTS_AT_LEAST))
        for path in self.files:
            splitter = LineSplitter()
            with path.open("rb") as file:
                while chunk := file.read(chunk_bytes):
                    yield splitter.feed(chunk)
            yield splitter.finish()


def one_file(path: Path) -> Source:
    """The lines of one file. Raises CONFIG_ERROR when there are none."""
    if not path.stat().st_size:
        raise ConfigError(f"{path} is empty: choose a file with lines")
    return Source(str(path), (path,), path.stat().st_size)


def standard_library() -> Source:
    """Every source of CPython's own standard library on this machine."""
    root = Path(sysconfig.get_path("stdlib"))
    files = tuple(sorted(path for path in root.rglob("*.py") if _is_own(path.relative_to(root))))
    if not files:
        raise ConfigError(f"{root} has no Python sources: give the demo a file with --file")
    title = f"{len(files):,} sources of CPython {platform.python_version()}'s standard library"
    return Source(title, files, sum(path.stat().st_size for path in files))


def _is_own(path: Path) -> bool:
    return not any(part in NOT_PYTHONS_OWN for part in path.parts)

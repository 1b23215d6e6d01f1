"""Tables under keys, more of them than memory holds: kept in files of a directory that goes with them."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from dledger.common.errors import ConfigError

SPILL_AT_BYTES = 256 << 20
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def packed(table: pa.Table) -> bytes:
    """As Arrow's stream, compressed."""
    sink = pa.BufferOutputStream()
    _write([table], sink)
    return bytes(sink.getvalue())


def unpacked(source: pa.Buffer | pa.NativeFile) -> pa.Table:
    """What ``packed`` made of it."""
    return pa.ipc.open_stream(source).read_all()


def _write(tables: list[pa.Table], sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, tables[0].schema, options=_OPTIONS) as out:
        for table in tables:
            out.write_table(table)


class Spill:
    """A context manager. The directory is in TMPDIR, and made when it is needed."""

    def __init__(self, limit_bytes: int = SPILL_AT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._held: defaultdict[str, list[pa.Table]] = defaultdict(list)
        self._held_bytes = 0
        self._files: defaultdict[str, list[Path]] = defaultdict(list)
        self._dir: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._dir is not None:
            self._dir.cleanup()

    @property
    def keys(self) -> list[str]:
        """Of all that was added and not taken."""
        return sorted({*self._held, *self._files})

    def add(self, key: str, table: pa.Table) -> None:
        """``key`` names a file. Raises CONFIG_ERROR if TMPDIR cannot take it."""
        self._held[key].append(table)
        self._held_bytes += table.nbytes
        if self._held_bytes <= self._limit_bytes:
            return
        try:
            self._spill()
        except OSError as reason:
            why = os.strerror(reason.errno) if reason.errno else reason
            raise ConfigError(
                f"{tempfile.gettempdir()} cannot take what memory does not hold ({why}): point TMPDIR at a larger disk"
            ) from reason

    def take(self, key: str) -> list[pa.Table]:
        """All that was added under the key."""
        tables = self._held.pop(key, [])
        for path in self._files.pop(key, []):
            with pa.OSFile(os.fspath(path), "rb") as file:
                tables.append(unpacked(file))
            path.unlink()
        return tables

    def _spill(self) -> None:
        if self._dir is None:
            self._dir = tempfile.TemporaryDirectory(prefix="dledger-check-")
        for key, tables in self._held.items():
            path = Path(self._dir.name) / f"{key}-{len(self._files[key])}.arrow"
            with pa.OSFile(os.fspath(path), "wb") as file:
                _write(tables, file)
            self._files[key].append(path)
        self._held.clear()
        self._held_bytes = 0

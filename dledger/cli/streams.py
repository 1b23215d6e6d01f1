"""Standard streams as they may be inherited: closed, full, or with a reader that has had enough."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDIN, STDOUT, STDERR = 0, 1, 2


def fill_closed_streams() -> frozenset[int]:
    """Puts /dev/null in place of a closed standard stream, so that no other file gets its number. Returns the streams
    that were closed.

    They stay of no use: reading stdin and writing to stdout fail with EBADF. Output to stderr is dropped.
    """
    closed = set()
    for descriptor, mode in ((STDIN, os.O_WRONLY), (STDOUT, os.O_RDONLY), (STDERR, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, mode)  # the lowest number that is free: the one looked at
            closed.add(descriptor)
    if STDOUT in closed:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  # for the life of the process
    if STDERR in closed:
        sys.stderr = open(STDERR, "w", encoding="utf-8", closefd=False)  # noqa: SIM115  # for the life of the process
    return frozenset(closed)


class OutputError(OSError):
    """Stdout cannot be written; ``strerror`` says why. Not raised where its reader has had enough (BrokenPipeError)."""


class _Output(io.FileIO):
    """Stdout: what it raises is told from the failures of other files."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as failure:
            raise OutputError(failure.errno, failure.strerror) from failure


class _Complaints(io.FileIO):
    """Stderr."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            # There is nobody left to tell, as where it is closed; what the command does, and its exit code, stand.
            return memoryview(data).nbytes


def guard_streams() -> None:
    """From now on stdout raises OutputError if it cannot be written, and stderr drops anything it cannot take."""
    sys.stdout = _over(_Output(sys.stdout.fileno(), "w", closefd=False), sys.stdout)
    sys.stderr = _over(_Complaints(sys.stderr.fileno(), "w", closefd=False), sys.stderr)


def _over(raw: io.FileIO, before: TextIO) -> io.TextIOWrapper:
    lines = bool(before.line_buffering)
    return io.TextIOWrapper(io.BufferedWriter(raw), before.encoding, before.errors, line_buffering=lines)


def discard_output() -> None:
    """Drops what could not be written to stdout: it would fail once more when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)

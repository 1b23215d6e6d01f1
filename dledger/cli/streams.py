"""Standard streams as they may be inherited: closed, full, or read by somebody who has had enough."""

from __future__ import annotations

import os
import sys
from pathlib import Path

STDIN, STDOUT, STDERR = 0, 1, 2


def fill_closed_streams() -> frozenset[int]:
    """Puts /dev/null where a standard stream is closed, so that no other file gets its number. Returns which were.

    What had been closed stays of no use: reading stdin and writing to stdout fail with EBADF. What goes to stderr is
    dropped.
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


def discard_output() -> None:
    """Drops what could not be written to stdout: it would fail once more when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)

"""The first module of the command line. Ctrl-C ends the process with 130 also while the others are imported."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

INTERRUPTED = 130


@contextmanager
def ended_by_interrupts() -> Iterator[None]:
    """SIGINT ends the process at once: nothing was begun. One that is ignored stays so."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def main() -> None:
    """Runs the command line and ends the process with its exit code."""
    with ended_by_interrupts():
        from dledger.cli.main import main as run  # noqa: PLC0415  # under the handler
    run()

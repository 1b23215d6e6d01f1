"""Ctrl-C and SIGTERM as a command with something to end hears them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dledger.cli.interrupts import cancelled_by_signals


@contextmanager
def handled_by(handler: signal.Handlers) -> Iterator[None]:
    """SIGINT, as the process inherited it."""
    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


async def test_every_signal_cancels_and_the_first_alone_is_told() -> None:
    told: list[str] = []
    cancelled = 0
    with cancelled_by_signals(lambda: told.append("first")):
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
            with pytest.raises(asyncio.CancelledError):
                await asyncio.Event().wait()
            cancelled += 1
    assert (cancelled, told) == (2, ["first"])


async def test_a_signal_that_was_ignored_stays_ignored() -> None:
    """A shell without job control starts what runs behind & so: the Ctrl-C of its terminal is not meant for that."""
    told: list[str] = []
    with handled_by(signal.SIG_IGN):
        with cancelled_by_signals(lambda: told.append("heard")):
            os.kill(os.getpid(), signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    assert not told

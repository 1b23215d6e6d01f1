"""Ctrl-C and SIGTERM as a command with something to end hears them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dledger.cli.interrupts import cancelled_by_signals
from dledger.cli.start import ended_by_interrupts


@contextmanager
def handled_by(handler: signal.Handlers | Callable[..., object]) -> Iterator[None]:
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


def test_ctrl_c_while_the_program_is_imported_ends_it_with_130_and_no_trace() -> None:
    """An import that is interrupted stands for all of them."""
    program = (
        "import os, signal, sys\n"
        "class Interrupts:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'dledger.cli.main': os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupts())\n"
        "from dledger.cli.start import main\n"
        "main()"
    )
    done = subprocess.run([sys.executable, "-c", program, "--version"], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_handler_of_the_imports_is_gone_once_they_are_done() -> None:
    with handled_by(signal.default_int_handler):
        with ended_by_interrupts():
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with handled_by(signal.SIG_IGN), ended_by_interrupts():
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN

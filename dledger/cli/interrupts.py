"""Ctrl-C and SIGTERM for a command that has something to bring to an end, and to tell of it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def cancelled_by_signals(on_first: Callable[[], object]) -> Iterator[None]:
    """Either signal cancels the current task; ``on_first`` is called before the first.

    While the task ends, the next signal cancels it once more, and so cuts short anything it awaits. A signal that the
    process was started to ignore, as a job behind a script's & is, stays ignored.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    came = False

    def end() -> None:
        nonlocal came
        if not came:
            came = True
            on_first()
        task.cancel()

    heard = [number for number in NUMBERS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heard:
        loop.add_signal_handler(number, end)
    try:
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)

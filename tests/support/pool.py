"""The processes of a long command, and a Ctrl-C that ends it with one word instead of a traceback from each."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial

INTERRUPTED = 130
"""What a shell makes of SIGINT."""


def _do_nothing() -> None:
    """Nothing is to be prepared."""


@contextmanager
def processes(jobs: int, prepare: Callable[[], None] = _do_nothing) -> Iterator[ProcessPoolExecutor]:
    """``prepare`` is called in each. An interrupt ends them at once, and is raised on."""
    with ProcessPoolExecutor(jobs, initializer=partial(_begin, prepare)) as pool:
        try:
            yield pool
        except KeyboardInterrupt:
            for child in multiprocessing.active_children():
                child.terminate()
            raise


def _begin(prepare: Callable[[], None]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it too, and decides
    prepare()


def until_interrupted(main: Callable[[], int]) -> int:
    """What ``main`` returns, or ``INTERRUPTED``."""
    try:
        return main()
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        return INTERRUPTED

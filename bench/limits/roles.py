"""Processes of this one, forked: what the limits over sockets are made of."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

from dledger.cli.ports import LOOPBACK

_PR_SET_PDEATHSIG = 1
_FORK = multiprocessing.get_context("fork")


def listener() -> socket.socket:
    """Bound to a free port of the loopback."""
    opened = socket.create_server((LOOPBACK, 0))
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return opened


def connect(port: int) -> socket.socket:
    """Without delay: what is written leaves at once."""
    opened = socket.create_connection((LOOPBACK, port))
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def accept(listening: socket.socket) -> socket.socket:
    """As ``connect``."""
    opened, _ = listening.accept()
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


@contextmanager
def role(run: Callable[..., None], *arguments: Any) -> Iterator[BaseProcess]:
    """``run`` in a process of its own, until the block ends. It ends with this one, however that ends."""
    process = _FORK.Process(target=_run, args=(run, arguments), daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


@contextmanager
def server(run: Callable[..., None], *arguments: Any) -> Iterator[tuple[BaseProcess, int]]:
    """As ``role``; ``run`` gets a listening socket first, whose port is told. Nobody else holds it open: who is
    connected to a process that has ended is told so, whether it had accepted or not."""
    with ExitStack() as stack:
        with listener() as listening:
            port = listening.getsockname()[1]
            process = stack.enter_context(role(run, listening, *arguments))
        yield process, port


def end_with(failure: Exception) -> NoReturn:
    """Ends this process, whichever of its threads calls it."""
    print(f"{multiprocessing.current_process().name} ends: {failure}", file=sys.stderr, flush=True)
    os._exit(1)


def _run(run: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    multiprocessing.current_process().name = run.__name__.strip("_")
    try:
        run(*arguments)
    except OSError as failure:
        end_with(failure)

"""Processes of their own: what the limits over sockets are made of.

They are begun anew, not forked: this process has threads, and objects whose end waits for them (a server of grpc.aio
waits for its poller), which a fork has without the threads, and its collector would wait for ever.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NoReturn

from bench.work import MeasurementFailed
from dledger.cli.ports import LOOPBACK

_PR_SET_PDEATHSIG = 1
_SPAWN = multiprocessing.get_context("spawn")


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
    """``run`` in a process of its own, which has begun, until the block ends. It ends with this one, however that ends.
    What is given is pickled. Raises MeasurementFailed where it does not begin."""
    begun, beginning = _SPAWN.Pipe(duplex=False)
    process = _SPAWN.Process(target=_run, args=(beginning, run, arguments), daemon=True)
    process.start()
    beginning.close()
    try:
        with begun:
            _wait_for(begun, run)
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


def _wait_for(begun: Connection, run: Callable[..., None]) -> None:
    try:
        begun.recv_bytes()
    except EOFError as ended:
        raise MeasurementFailed(f"the process of {run.__qualname__} has ended before it began: see above") from ended


def _run(beginning: Connection, run: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    multiprocessing.current_process().name = run.__name__.strip("_")
    with beginning:
        beginning.send_bytes(b"begun")
    try:
        run(*arguments)
    except OSError as failure:
        end_with(failure)

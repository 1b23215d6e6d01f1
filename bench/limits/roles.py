"""Processes of this one, forked: what the limits over sockets are made of."""

from __future__ import annotations

import multiprocessing
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

from bench.processes import LOOPBACK

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
    """``run`` in a process of its own, until the block ends."""
    process = _FORK.Process(target=run, args=arguments, daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()

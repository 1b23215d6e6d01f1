"""Ends a node when the process it belongs to is gone, for any reason.

The owner holds an exclusive lock on a file for as long as it lives; its nodes wait for that lock. The kernel gives it
up with the owner, kill -9 included, on every POSIX system. This counts too for nodes that somebody else started in its
place.
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from pathlib import Path

from dledger.common.errors import ConfigError


class Lifeline:
    """The owner's end. Lets go with ``release`` or with the process."""

    def __init__(self, path: Path) -> None:
        """Takes the lock. Raises CONFIG_ERROR when another process holds it."""
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise ConfigError(f"the nodes in {path.parent} are run by another process: stop it first") from None

    def release(self) -> None:
        """Every node that hangs on it begins a clean stop."""
        os.close(self._descriptor)


def stop_when_released(path: Path) -> None:
    """The node's end: sends this process SIGTERM once nobody holds ``path`` any more.

    Raises CONFIG_ERROR when nobody holds it now: its owner was gone before the node was up.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as failure:
        raise ConfigError(f"{path} cannot be opened: {failure.strerror}; leave --stop-with out") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        threading.Thread(target=_wait, args=(descriptor,), name="lifeline", daemon=True).start()
        return
    os.close(descriptor)
    raise ConfigError(f"no process holds {path}: leave --stop-with out to run the node by itself")


def _wait(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    os.close(descriptor)
    os.kill(os.getpid(), signal.SIGTERM)

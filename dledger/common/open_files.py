"""The limit of open files, and the files kept back for the node itself.

Every client that connects takes a file, and clients that leak connections take all there are. Even then the node must
be able to roll its log and to speak to its peers. So the process lowers its own limit by ``KEPT_BACK``. The node opens
its own files above that limit: for the moment of that one call the limit is raised again.
"""

from __future__ import annotations

import errno
import logging
import resource
import time
from collections.abc import Callable
from threading import Lock
from typing import TypeVar

from dledger.common.limited_log import LimitedLog

logger = logging.getLogger(__name__)

Opened = TypeVar("Opened")

WANTED_FILES = 65_536
KEPT_BACK = 150
"""Files that only the node itself opens: as etcd keeps back. A quarter of a limit below 600."""

_lock = Lock()
"""The limit is the process's: one thread at a time raises it."""
_log = LimitedLog(logger)


def keep_files_back() -> int:
    """Sets this process's limit of open files: as many as it may have, up to ``WANTED_FILES``, less those kept back.
    Returns the limit. For programs: a library's host has a limit of its own."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = WANTED_FILES if most == resource.RLIM_INFINITY else min(WANTED_FILES, most)
    limit = allowed - min(KEPT_BACK, allowed // 4)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
    return limit


def needed(opening: Callable[[], Opened]) -> Opened:
    """What ``opening`` returns. When it fails for want of a file, it is called once more, with those kept back. Raises
    OSError as it does."""
    try:
        return opening()
    except OSError as reason:
        if reason.errno != errno.EMFILE:
            raise
    with _lock:
        limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        _log.say(
            logging.ERROR,
            "no files",
            time.monotonic(),
            "all files that this process may open are taken: it goes on with those kept back",
            limit=limit,
            do="find out who connects to it, or raise the limit",
        )
        above = limit + KEPT_BACK
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (above if most == resource.RLIM_INFINITY else min(above, most), most)
        )
        try:
            return opening()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))

"""How many clients a server lets in. The process must have files left for itself."""

from __future__ import annotations

import resource
from collections.abc import Iterable
from typing import Protocol, TypeVar

MAX_CONNECTIONS = 16_384
"""An idle one takes up to 20 KiB."""
SPARE_FILES = 32
"""Below the limit of open files: for other ports of the same process. Files for its own work are kept above the limit
(common/open_files.py)."""


class Guest(Protocol):
    @property
    def is_idle(self) -> bool: ...


AnyGuest = TypeVar("AnyGuest", bound=Guest)


def are_files_short(file_number: int) -> bool:
    """Whether a file that was just opened is among the last that the process may open. The system gives out the lowest
    number that is free, so that nearly all below it are taken."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit != resource.RLIM_INFINITY and file_number >= limit - min(SPARE_FILES, limit // 8)


def who_makes_room(guests: Iterable[AnyGuest], newest: AnyGuest) -> AnyGuest:
    """The first that is idle: ``guests`` come in the order in which they were let in. If none is, the newest has to
    go."""
    return next((guest for guest in guests if guest is not newest and guest.is_idle), newest)

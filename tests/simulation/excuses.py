"""Why a node may stop, or not start: something befell its disk in this life, or a documented limit is met.

Whatever has no excuse here is a violation. An excuse names the fault that was made, never what the product says of it.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from dledger.common.errors import Code
from dledger.log.segment.segment import SEGMENT_SUFFIX, STATE_SUFFIX
from tests.simulation.truth import beginning

if TYPE_CHECKING:
    from tests.simulation.host import SimHost
    from tests.simulation.life import Life


def may_end(host: SimHost, life: Life, code: Code) -> bool:
    """Whether ``life`` may end, or never begin, with ``code``."""
    match code:
        case Code.DISK_ERROR:
            return errno.EIO in life.disk.failures
        case Code.DISK_FULL:
            return errno.ENOSPC in life.disk.failures and host.is_starting and not _has_its_logs(host)
        case Code.CORRUPT_LOG:
            return has_lost_its_beginning(host)
    return False


def _has_its_logs(host: SimHost) -> bool:
    """A full disk refuses appends, and nothing else: whoever has a log starts on it, and goes on. A new node, or a new
    group, may find no room to begin in: for its first segment, or for the small state that comes last."""
    seats = [seat for seat in host.seats if seat.group.is_founding or host.platter.paths(seat.directory)]
    return all(
        any(path.endswith(suffix) for path in host.platter.paths(seat.directory))
        for seat in seats
        for suffix in (SEGMENT_SUFFIX, STATE_SUFFIX)
    )


def has_lost_its_beginning(host: SimHost) -> bool:
    """The limit (docs/gaps.md, "Damage that halts the node"): both copies of the small state that a trimmed log begins
    with rotted. That is the state beside the first segment that is there, or that says that the log begins with it.
    Everything else that rots here is repaired."""
    return any(
        not good and path in host.rotten_paths
        for seat in host.seats
        for path, good in beginning(host.platter, seat.directory)
    )

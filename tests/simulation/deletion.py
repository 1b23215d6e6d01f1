"""What may be deleted: no more than somebody asked for, by hand, by size or by age, and by a clock that a majority has.

What was asked for counts from the moment it is asked: whether it was heard, or committed, nobody knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dledger.common.types import Position, TrimPoint
from dledger.log.segment.segment import SEGMENT_SUFFIX, STATE_SUFFIX, parse_name
from dledger.raft.quorum import quorum_value
from tests.simulation.chronicle import Chronicle
from tests.simulation.platter import Platter
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.host import SimHost
    from tests.simulation.seat import Seat

CLOCK_MEMORY_S = 10.0
"""A leader may still go by what a clock said so long ago."""
SLACK_MS = 100
"""Between two ways of reading a clock."""


class Deletion:
    def __init__(self, chronicle: Chronicle) -> None:
        self._chronicle = chronicle
        self._before_index = 0
        self._max_bytes: set[int] = set()
        self._ages_ms: set[int] = set()

    def ask(self, before_index: int) -> None:
        self._before_index = max(self._before_index, before_index)

    def ask_policy(self, max_age_ms: int, max_bytes: int) -> None:
        self._ages_ms |= {max_age_ms} - {0}
        self._max_bytes |= {max_bytes} - {0}

    def check(self, leader: Seat, hosts: Sequence[SimHost], trim: TrimPoint) -> str:
        """``leader`` appends a TRIM frame that says so; ``hosts`` are the voters. What asked for it."""
        if not self._chronicle.is_committed(trim.point.position, trim.point.term):
            raise Violation("only what is committed is trimmed", f"{leader.id} trims up to {trim.point}")
        if trim.first_index <= self._before_index:
            return "by hand"
        if self._is_too_much(leader, trim.point.position):
            return "by size"
        if self._is_too_old(leader, hosts, trim.point.position):
            return "by age"
        raise Violation(
            "only what was asked for is trimmed",
            f"{leader.id} trims before {trim.first_index}: asked for was {self._before_index} by hand, "
            f"{self._max_bytes} bytes, {self._ages_ms} ms",
        )

    def _is_too_much(self, leader: Seat, last: Position) -> bool:
        """At the boundary before this one there was more than was to be kept. A log can begin only where a small state
        is: on a full disk a segment may go without, and then goes along with the one before it."""
        if not self._max_bytes:
            return False
        files = _segments(leader.host.platter, leader.directory)
        before = [each.position for each in files if each.has_state and each.position <= last]
        kept_bytes = sum(each.size_bytes for each in files if not before or each.position >= before[-1])
        return kept_bytes > min(self._max_bytes)

    def _is_too_old(self, leader: Seat, hosts: Sequence[SimHost], last: Position) -> bool:
        if not self._ages_ms:
            return False
        latest_ms = [host.latest_clock_ms(CLOCK_MEMORY_S) for host in hosts]
        agreed_ms = min(leader.host.latest_clock_ms(CLOCK_MEMORY_S), quorum_value(latest_ms, len(hosts)))
        return self._chronicle.timestamp_ms(last) < agreed_ms - min(self._ages_ms) + SLACK_MS


class _File(NamedTuple):
    position: int
    """Where it begins."""
    size_bytes: int
    has_state: bool


def _segments(platter: Platter, directory: str) -> list[_File]:
    found = []
    for path in platter.paths(directory):
        name = parse_name(path.rpartition("/")[2]) if path.endswith(SEGMENT_SUFFIX) else None
        if name is not None:
            has_state = platter.exists(path.removesuffix(SEGMENT_SUFFIX) + STATE_SUFFIX)
            found.append(_File(name.base_position, len(platter.find(path).data), has_state))
    return sorted(found)

"""What a node lost of what it acknowledged: it says so, durably where that was cut, and does not vote without it."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from dledger.common.types import DEFAULT_GROUP, LogPoint, Position
from dledger.group.group_record import GROUP_RECORD_NAME
from dledger.raft.state import VoteBlocker
from tests.simulation.chronicle import Chronicle, holds
from tests.simulation.truth import group_record
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from dledger.v1.storage_pb2 import GroupRecord
    from tests.simulation.host import SimHost
    from tests.simulation.seat import Seat


def owes(host: SimHost, group: str = DEFAULT_GROUP) -> bool:
    """Whether its disk says that it may have lost what it acknowledged, and that no leader has caught it up since."""
    return _on_disk(host, group).owes_catch_up


def lacks_tail(host: SimHost, group: str = DEFAULT_GROUP) -> bool:
    """Whether its disk says that the end of a log was cut, and that the others have not told yet what was there."""
    return _on_disk(host, group).tail_is_unknown


def _on_disk(host: SimHost, group: str) -> GroupRecord:
    return group_record(host.platter, f"{host.seat(group).directory}/{GROUP_RECORD_NAME}")


class Debts:
    def __init__(self, chronicle: Chronicle) -> None:
        self._chronicle = chronicle
        self._lost = defaultdict[str, set[LogPoint]](set)
        """By disk: the last points that were durable there before something of it rotted, and went."""
        self._cut: set[str] = set()
        """Disks with a damaged log that a leader had cut, and that the next life may find whole, until a life says what
        its log holds now."""

    def is_admitted(self, seat: Seat, promised: LogPoint) -> bool:
        """Whether ``seat``, which has come back without ``promised``, is excused: what a leader cut from a damaged log
        is owed, or was never committed; a tail that rotted behind the mark is asked for before the first vote; what
        went with the power, where nothing is synced, is owed."""
        core = seat.replica.core
        is_admitted = seat.lost_tail and (VoteBlocker.UNKNOWN_TAIL in core.vote_blockers or not core.is_voter)
        is_admitted |= not seat.cluster.is_synced and VoteBlocker.OWES_CATCH_UP in core.vote_blockers
        if seat.life.was_damaged or seat.disk_name in self._cut:
            is_admitted |= VoteBlocker.OWES_CATCH_UP in core.vote_blockers or not self._is_committed(promised)
        if is_admitted:
            self._lost[seat.disk_name].add(promised)
        return is_admitted

    def promised_anew(self, seat: Seat) -> None:
        """What ``seat`` holds is known again: no cut of before excuses what it lacks from now on."""
        self._cut.discard(seat.disk_name)

    def has_lost(self, seat: Seat) -> bool:
        """Whether its disk ever came back without what it had said was durable."""
        return seat.disk_name in self._lost

    def _is_committed(self, point: LogPoint) -> bool:
        return self._chronicle.is_committed(point.position, point.term)

    def check_vote(self, seat: Seat, candidate: Seat) -> None:
        """``seat`` votes for ``candidate``, itself or another: that one must have what ``seat`` had acknowledged."""
        if owes(seat.host, seat.group.name):
            raise Violation("no vote in debt", f"{seat.id} votes, and owes a catch-up")
        for lost in self._lost.get(seat.disk_name, ()):
            if candidate.is_up and self._is_committed(lost) and not holds(candidate.replica, lost):
                said = f"{seat.id} had acknowledged {lost}, and votes for {candidate.id}, which does not have it"
                raise Violation("no vote in debt", said)

    def cutting(self, seat: Seat, after: Position) -> None:
        """A leader has a damaged log cut behind ``after``: what of it is committed may rest on this node."""
        self._cut.add(seat.disk_name)
        held = self._chronicle.committed_below(seat.promised)
        if held > after and not owes(seat.host, seat.group.name):
            raise Violation("what is cut is owed", f"{seat.id} cuts behind {after}, it held {held}, committed")

"""What a server may tell its clients, and when: an answer that nothing explains is a violation.

Who is asked may have been deposed and not know it: he is *stale*, and his log lacks what was committed since.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, NamedTuple

from dledger.common.errors import Code, DLedgerError
from dledger.group.leader.quorum_ack_checker import AppendResult
from tests.simulation.process import GoneError
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.groups import SimGroup
    from tests.simulation.life import Life
    from tests.simulation.seat import Seat

ELSEWHERE = frozenset(
    (
        Code.NOT_LEADER,
        Code.LEADER_NOT_READY,
        Code.LEADER_TRANSFERRING,
        Code.LEADER_PENDING_FULL,
        Code.SHUTTING_DOWN,
        Code.TERM_CHANGED,
        Code.WAIT_QUORUM_ACK_TIMEOUT,
    )
)
"""Whoever hears one of these asks again, or another: no leader's word about the request itself."""


class Question(NamedTuple):
    """Who was asked, as he was then."""

    seat: Seat
    life: Life
    term: int
    was_rotten: bool


class Answers:
    """Judges what clients of one group are told."""

    def __init__(self, group: SimGroup) -> None:
        self._group = group
        self._chronicle = group.watch.chronicle

    def ask(self, seat: Seat) -> Question:
        """Raises GoneError where nobody is there to answer."""
        if seat.is_down:
            raise GoneError
        return Question(seat, seat.host.life, seat.term, seat.is_rotten)

    def is_stale(self, question: Question) -> bool:
        """Somebody was elected behind the term in which it was asked."""
        return question.term < max(self._group.watch.leaders, default=0)

    # Refusals ----------------------------------------------------------------------------------------------------

    def refused(self, question: Question, refusal: DLedgerError, *reasons: Code) -> None:
        """``reasons``: what the request itself explains, besides."""
        code = refusal.code
        if self._group.is_removed:
            return
        if code in ELSEWHERE or code in reasons or self._is_of_the_disk(question, code):
            return
        raise Violation("a refusal has its reason", f"{question.seat.name}: {refusal!r}")

    def _is_of_the_disk(self, question: Question, code: Code) -> bool:
        disk = question.life.disk
        match code:
            case Code.DISK_ERROR:
                return errno.EIO in disk.failures
            case Code.DISK_FULL:
                refuse_bytes = self._group.cluster.config_of(question.seat.host).limits.disk_refuse_free_bytes
                return errno.ENOSPC in disk.failures or disk.least_free_bytes < refuse_bytes
            case Code.CORRUPT_LOG:
                return question.was_rotten or question.seat.is_rotten or errno.EIO in disk.failures
        return False

    def refused_read(self, question: Question, refusal: DLedgerError, index: int) -> None:
        """Of ``index``, which was committed by this node's own word."""
        is_trimmed = self._chronicle.trimmed_to > index
        self.refused(question, refusal, *([Code.INDEX_LESS_THAN_LOCAL_BEGIN] if is_trimmed else []))

    # Acknowledgements --------------------------------------------------------------------------------------------

    def acknowledged(self, result: AppendResult) -> None:
        """It says where the records are, of which term and time."""
        header = self._chronicle.frame_of(result.base_index)
        if header is None or result.base_index + result.count > header.end_index:
            raise Violation("what is acknowledged is committed", f"{result} is of no frame that is")
        if (result.term, result.timestamp_ms) != (header.term, header.timestamp_ms):
            raise Violation("an acknowledgement says what is", f"{result} of {header}")

"""Control frames of one kind, appended by the leader one after the other: the second waits for the outcome of the
first.

A frame that was appended may still be committed after its caller gave up. So the next frame waits until the outcome is
known, not until the caller is gone. If no quorum acknowledged a frame in time, the next one may follow: the first stays
pending in the log, and is committed before it.
"""

from __future__ import annotations

import asyncio
import logging

from dledger.common.errors import Code, error
from dledger.common.types import Position, Term
from dledger.group.context import GroupContext
from dledger.group.leader.appender import Appender
from dledger.group.leader.quorum_ack_checker import AppendResult
from dledger.log.frame.frame import ControlKind

logger = logging.getLogger(__name__)


class ControlFrames:
    """Of one kind, in one group. ``what`` one of them is, in words."""

    def __init__(self, context: GroupContext, appender: Appender, kind: ControlKind, what: str) -> None:
        self._context = context
        self._appender = appender
        self._kind = kind
        self._what = what
        self._appending: asyncio.Future[AppendResult] | None = None
        self._written_term, self._written_position = Term(0), Position(0)
        """Of the last one that is in the log, as far as this node wrote it."""

    @property
    def is_pending(self) -> bool:
        """Whether one is not in the log yet, or not committed, as far as this leader began it."""
        return self._appending is not None

    def check_free(self) -> None:
        """Raises CHANGE_PENDING."""
        if self._appending is not None:
            raise error(Code.CHANGE_PENDING, f"another {self._what} is not committed yet; try again after a moment")

    async def wait_until_free(self) -> None:
        """Returns once the outcome of the last one is known."""
        while self._appending is not None:
            await asyncio.wait([self._appending])

    async def wait_until_committed(self) -> None:
        """Returns once the last such frame in the log is committed, whichever answer its caller got. The leader must be
        ready: then all frames of earlier terms are committed, and only a frame that this leader wrote may not be.

        Raises NOT_LEADER or SHUTTING_DOWN if this node leads no more, TERM_CHANGED and WAIT_QUORUM_ACK_TIMEOUT.
        """
        is_of_this_term = self._written_term == self._context.term
        if is_of_this_term and self._written_position > self._context.core.commit_position:
            self._context.admission.check_reader()
            await self._appender.committed(self._written_position)

    async def append(self, body: bytes) -> AppendResult:
        """Returns once it is committed; ``base_index`` is its position. A caller that gives up takes nothing back.

        Raises CHANGE_PENDING, and what an append raises.
        """
        return await asyncio.shield(self.begin(body))

    def begin(self, body: bytes) -> asyncio.Future[AppendResult]:
        """As ``append``, for a caller that does not wait: a failure is logged."""
        self.check_free()
        appending = self._appending = self._appender.append_control(self._kind, body, self._on_written)
        appending.add_done_callback(self._appended)
        return appending

    def _on_written(self, position: Position) -> None:
        self._written_term, self._written_position = self._context.term, position

    def _appended(self, appending: asyncio.Future[AppendResult]) -> None:
        self._appending = None
        if not appending.cancelled() and (failure := appending.exception()) is not None:
            logger.warning("a %s was not committed", self._what, extra={"group": self._context.group, "why": failure})

"""Refusals of conditional appends: told when the end of the log that they rest on is certain.

A leader judges a conditional append by the end of its own log. Frames there may not be committed, and another leader
may cut them. Or this leader was deposed without knowing it, and lacks what the next one has committed. So a refusal
waits for two things. All it was judged by is committed in this term. And a quorum has confirmed the leadership in a
round begun after the judgement: the commit alone may rest on older acknowledgements.
"""

from __future__ import annotations

import asyncio

from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import Role, Term
from dledger.group.context import GroupContext
from dledger.group.leader.quorum_ack_checker import AppendResult

Appended = asyncio.Future[AppendResult]


class IndexRefusals:
    """The conditional appends that were judged wrong and are not answered yet."""

    def __init__(self, context: GroupContext) -> None:
        self._context = context
        self._refused: dict[Appended, list[Appended]] = {}
        """Each with all that share its refusal, itself included."""

    def add(self, appended: Appended, expect_index: int, committed: Appended | None) -> None:
        """``appended`` fails with WRONG_EXPECTED_INDEX, or with why that is not certain; it is not in the log in either
        case. ``committed`` is done when the log's present end is committed; None: it is."""
        next_index = self._context.log.state.next_index
        refusal = error(
            Code.WRONG_EXPECTED_INDEX,
            f"the append expects index {expect_index}, the next record gets {next_index}: nothing was appended",
            next_index=next_index,
        )
        refused = self._refused[appended] = [appended]
        work = self._tell(refused, refusal, committed, self._context.term)
        task = asyncio.get_running_loop().create_task(work, name=f"wrong-index-{self._context.group}")
        task.add_done_callback(self._context.watch_task)

    def take_along(self, appended: Appended, behind: Appended | None) -> bool:
        """Whether ``behind`` is being refused: ``appended``, which came behind it on a stream, then is too."""
        refused = self._refused.get(behind) if behind is not None else None
        if refused is None:
            return False
        refused.append(appended)
        self._refused[appended] = refused
        return True

    async def _tell(
        self, refused: list[Appended], refusal: DLedgerError, committed: Appended | None, term: Term
    ) -> None:
        answer = self._unconfirmed()
        try:
            if committed is not None:
                await committed
            await self._context.confirm_leadership()
            still_leads = self._context.role is Role.LEADER and self._context.term == term
            answer = refusal if still_leads else self._unconfirmed()
        except DLedgerError as failure:
            is_unknown = failure.code in (Code.TERM_CHANGED, Code.WAIT_QUORUM_ACK_TIMEOUT)
            answer = self._unconfirmed() if is_unknown else failure
        finally:
            for appended in refused:
                del self._refused[appended]
                if not appended.done():
                    appended.set_exception(answer.copy())

    def _unconfirmed(self) -> DLedgerError:
        """What is told instead of the refusal. The outcome is known all the same: nothing was appended."""
        try:
            self._context.admission.check_leader()
        except DLedgerError as refusal:
            return refusal
        return error(Code.LEADER_NOT_READY, "nothing was appended: the end of the log is not confirmed; try again")

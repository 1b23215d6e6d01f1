"""The attempts of one call that changes something: what may be asked again, and what its end says."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from dledger.common.deadline import Deadline
from dledger.common.errors import Code, DeadlineExceeded, DLedgerError, OutcomeUnknown
from dledger.rpc.client.failures import was_sent
from dledger.rpc.client.retry import PASSING
from dledger.rpc.client.verdict import leaves_doubt

if TYPE_CHECKING:
    from collections.abc import Awaitable

Result = TypeVar("Result")

_PASSING = PASSING | {Code.CHANGE_PENDING}
"""Refusals that pass by themselves."""


class Attempts:
    """Its time, and its doubt: the nodes that were asked and may have done it without a word.

    ``repeatable``: doing it twice is as good as once, so after a doubtful attempt it is asked for again.
    """

    def __init__(self, timeout_ms: float, *, repeatable: bool) -> None:
        self._timeout_ms = timeout_ms
        self._deadline = Deadline(timeout_ms)
        self.repeatable = repeatable
        self._doubted: dict[str, None] = {}
        self._last: DLedgerError | None = None

    @property
    def left_ms(self) -> float:
        """Until the deadline; 0 when it has passed."""
        return self._deadline.left_ms

    @property
    def left_doubt(self) -> bool:
        """Whether a node was asked that may have done it without a word."""
        return bool(self._doubted)

    async def in_time(self, search: Awaitable[Result]) -> Result:
        """The result of something that changes nothing. Raises DeadlineExceeded at the call's deadline."""
        return await self._deadline.bound(search)

    def nobody_asked(self, refusal: DLedgerError) -> None:
        """No leader was found. Raises what will not pass. That time was up says less than what was said before."""
        if refusal.code not in _PASSING:
            raise refusal
        if self._last is None or refusal.code is not Code.TIMEOUT:
            self._last = refusal

    def refused(self, address: str, refusal: DLedgerError) -> None:
        """``address`` was asked and did not do it, as far as it says. Raises unless it is to be asked for again."""
        self._last = refusal
        if leaves_doubt(refusal) and was_sent(refusal):
            self._doubted[address] = None
            if not self.repeatable:
                raise self._unknown() from refusal
        elif refusal.code not in _PASSING:
            # Another node that leads by now speaks for all: what the earlier leader may still write is never
            # committed. But the node in doubt itself may have the earlier attempt still before it.
            if address in self._doubted:
                raise self._unknown() from refusal
            raise refusal

    def overdue(self) -> DLedgerError:
        """Why it ends with its deadline."""
        return self.given_up(self._last or DeadlineExceeded(f"nothing was asked for within {self._timeout_ms:.0f} ms"))

    def given_up(self, reason: DLedgerError) -> DLedgerError:
        """What the call ends with when it is not asked for again, for that reason."""
        return self._unknown() if self._doubted else reason

    def _unknown(self) -> OutcomeUnknown:
        text = f"asked of {', '.join(self._doubted)}, and no answer says what became of it ({self._last})"
        return OutcomeUnknown(f"{text}: see the status before asking again")

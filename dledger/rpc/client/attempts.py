"""The attempts of one call that changes something: when it may be asked again, and the meaning of its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.common.errors import Code, DLedgerError, OutcomeUnknown
from dledger.rpc.client.call_loop import CallLoop
from dledger.rpc.client.failures import was_sent
from dledger.rpc.client.retry import PASSING
from dledger.rpc.client.verdict import leaves_doubt

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

_PASSING = PASSING | {Code.CHANGE_PENDING}
"""Refusals that pass by themselves."""


class Attempts(CallLoop):
    """A call that may have been carried out although no answer came. It remembers the nodes that leave this doubt.

    ``repeatable``: carrying it out twice is as good as once, so after a doubtful attempt it is asked again.
    """

    def __init__(
        self,
        timeout_ms: float,
        rng: random.Random,
        *,
        repeatable: bool,
        on_wait: Callable[[DLedgerError], None] | None = None,
    ) -> None:
        super().__init__(timeout_ms, rng, passing=_PASSING, on_wait=on_wait)
        self.repeatable = repeatable
        self._doubted: dict[str, None] = {}

    @property
    def left_doubt(self) -> bool:
        """Whether a node was asked that may have carried the call out and gave no answer."""
        return bool(self._doubted)

    def refused(self, address: str, refusal: DLedgerError) -> None:
        """As of every call; and a refusal does not count while the node that gives it may still carry out an earlier
        attempt."""
        if not address:
            super().refused(address, refusal)
            return
        self.reason = refusal
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

    def given_up(self, reason: DLedgerError) -> DLedgerError:
        """OutcomeUnknown while there is doubt, else ``reason``."""
        return self._unknown() if self._doubted else reason

    def _unknown(self) -> OutcomeUnknown:
        text = f"asked of {', '.join(self._doubted)}, and no answer says what became of it ({self.reason})"
        return OutcomeUnknown(f"{text}: see the status before asking again")

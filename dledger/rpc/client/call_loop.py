"""The loop of a call that goes on through failovers: its time, its waits, and why it was not answered so far."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, TypeVar

from dledger.common.backoff import Backoff
from dledger.common.deadline import Deadline
from dledger.common.errors import Code, DeadlineExceeded, DLedgerError
from dledger.rpc.client.retry import ASKS_ELSEWHERE, PASSING

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from dledger.rpc.client.channels import Endpoint

Result = TypeVar("Result")


class Router(Protocol):
    """Knows the node to ask."""

    def lost(self, address: str, refusal: DLedgerError) -> None:
        """``address`` refused as a leader would not, or cannot be reached."""

    def check(self) -> None:
        """Raises the error that makes asking again useless, for example because the client was closed."""


class CallLoop:
    """One call that changes nothing. ``ask`` repeats it; streams use the pieces alone.

    The reason for a failure is the last refusal that says more than "too late": a TIMEOUT says less than the refusal
    before it.
    """

    def __init__(
        self,
        timeout_ms: float,
        rng: random.Random,
        *,
        passing: frozenset[Code] = PASSING,
        on_wait: Callable[[DLedgerError], None] | None = None,
    ) -> None:
        """``passing``: the codes after which the call is asked again. ``on_wait`` is told the reason of each pause."""
        self._on_wait = on_wait
        self._loop = asyncio.get_running_loop()
        self._passing = passing
        self._begun_s = self._loop.time()
        self._backoff = Backoff(rng)
        self.timeout_ms = timeout_ms
        self.reason: DLedgerError | None = None
        """Why there is no answer so far; None: nothing was refused yet."""

    @property
    def waited_s(self) -> float:
        """Since the call began, or since its time was last renewed."""
        return self._loop.time() - self._begun_s

    @property
    def left_ms(self) -> float:
        """Until the deadline; 0 when it has passed."""
        return max(0.0, self.timeout_ms - self.waited_s * 1000)

    def renew(self) -> None:
        """Gives the call its whole time again."""
        self._begun_s = self._loop.time()

    def progressed(self) -> None:
        """Something came: the whole time again, the shortest wait, and no reason for a failure."""
        self.renew()
        self._backoff.reset()
        self.reason = None

    async def bound(self, search: Awaitable[Result]) -> Result:
        """The result of something that changes nothing. Raises DeadlineExceeded at the deadline."""
        return await Deadline(self.timeout_ms, begun_s=self._begun_s).bound(search)

    def note(self, refusal: DLedgerError) -> None:
        """Remembers why there was no answer."""
        if self.reason is None or refusal.code is not Code.TIMEOUT:
            self.reason = refusal

    async def pause(self) -> None:
        """Waits before the next attempt, never beyond the deadline."""
        if self._on_wait is not None and self.reason is not None:
            self._on_wait(self.reason)
        await asyncio.sleep(min(self._backoff.next_s(), self.left_ms / 1000))

    async def ask(
        self,
        router: Router,
        find: Callable[[], Awaitable[Endpoint]],
        call: Callable[[Endpoint, float], Awaitable[Result]],
        *,
        attempt_ms: float,
    ) -> Result:
        """The answer of the node that ``find`` finds. ``call`` is told how many milliseconds it may take.

        Raises the errors of ``refused``, and at the deadline the error of ``overdue``.
        """
        while True:
            address = ""
            try:
                endpoint = await self.bound(find())
                address = endpoint.address
                return await call(endpoint, max(1.0, min(self.left_ms, attempt_ms)))
            except DLedgerError as refusal:
                if refusal.code in ASKS_ELSEWHERE:
                    router.lost(address, refusal)
                self.refused(address, refusal)
                self._check(router)
            await self.pause()
            if not self.left_ms:
                raise self.overdue()

    def _check(self, router: Router) -> None:
        try:
            router.check()
        except DLedgerError as end:
            raise self.given_up(end) from None

    def refused(self, _address: str, refusal: DLedgerError) -> None:
        """The node at ``address`` did not answer the call; an empty one: no node was found. Raises unless it is to be
        asked again."""
        if refusal.code not in self._passing:
            raise refusal
        self.note(refusal)

    def overdue(self) -> DLedgerError:
        """What the call ends with at its deadline."""
        return self.given_up(self.reason or DeadlineExceeded(f"nothing was asked for within {self.timeout_ms:.0f} ms"))

    def given_up(self, reason: DLedgerError) -> DLedgerError:
        """The error of the call when it is not asked again because of ``reason``."""
        return reason

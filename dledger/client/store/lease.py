"""Leases that a client keeps alive, and knows to be lost no later than the store can have ended them.

::

    sent ─────── answered ───────────────────────────────── sent + TTL
      │  the store's clock began behind this point             │ from here on it is not said to be alive
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar

from dledger.common.errors import Code, DLedgerError, LeaseLost, LeaseNotFound, error
from dledger.common.futures import release

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine
    from types import TracebackType

Result = TypeVar("Result")

KEPT_PER_TTL = 3
"""Keepalives in the time of a lease."""
RETRY_PART = 20
"""Of the time of a lease: the wait behind a keepalive that failed."""

logger = logging.getLogger(__name__)


def suspended_s() -> float:
    """For how long this machine was suspended since it started: the loop's clock stood still then, the store's did not.
    0 where the system does not tell."""
    boot_clock: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    if boot_clock is None:
        return 0.0
    return time.clock_gettime(boot_clock) - time.clock_gettime(time.CLOCK_MONOTONIC)


class Kept(NamedTuple):
    """An answer to a grant or to a keepalive."""

    id: int
    ttl_s: int
    sent_s: float
    """On the loop's clock, before the request left that was answered."""


class LeaseCalls(Protocol):
    """A lease's calls to the store."""

    async def grant(self, ttl_s: int, timeout_ms: float | None) -> Kept: ...

    async def keep_alive(self, lease_id: int, timeout_ms: float) -> Kept:
        """Raises LeaseNotFound."""

    async def revoke(self, lease_id: int) -> None: ...


class Lease:
    """Used as ``async with store.lease(10) as lease:``: granted at its beginning, kept alive in the background, revoked
    at its end, and its keys go with it.

    The lease may be lost: if the cluster cannot be reached for the time of the lease, or somebody revokes it. Then
    ``is_alive`` is False, ``check`` raises LeaseLost, ``lost`` returns, and so the block ends with LeaseLost unless it
    ends with another error. The store's clock decides when the keys go, and this program may stand still between any
    two of its steps. So ``is_alive`` protects nothing that others change too: put a comparison into the transaction.
    """

    def __init__(self, calls: LeaseCalls, ttl_s: int, timeout_ms: float | None = None) -> None:
        self._calls = calls
        self._loop = asyncio.get_running_loop()
        self._wanted_ttl_s = ttl_s
        self._timeout_ms = timeout_ms
        self._kept: Kept | None = None
        self._suspended_s = 0.0
        self._loss: LeaseLost | None = None
        self._has_ended = False
        self._on_lost: asyncio.Future[None] = self._loop.create_future()
        self._keeper: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        """Raises NoSpace, Unavailable, OutcomeUnknown: a lease of that kind expires by itself."""
        if self._kept is not None or self._has_ended:
            raise error(Code.UNEXPECTED_ARGUMENT, "a lease is granted once: make another with store.lease(…)")
        suspended = suspended_s()
        self._take(await self._calls.grant(self._wanted_ttl_s, self._timeout_ms), suspended)
        self._keeper = self._loop.create_task(self._keep(), name=f"dledger-lease {self.id:x}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.end()
        if self._loss is not None and value is None:
            raise self._lost_error()

    @property
    def id(self) -> int:
        """Raises LeaseLost before it was granted."""
        return self._granted.id

    @property
    def ttl_s(self) -> int:
        """As it was granted: the store raises what is too short."""
        return self._granted.ttl_s

    @property
    def is_alive(self) -> bool:
        """Whether the store surely has not ended it yet, by this machine's clock."""
        return self.left_s > 0

    @property
    def left_s(self) -> float:
        """For how long it will be alive without another keepalive; 0: it is not."""
        if self._kept is None or self._loss is not None or self._has_ended:
            return 0.0
        passed_s = self._loop.time() - self._kept.sent_s + suspended_s() - self._suspended_s
        return max(0.0, self._kept.ttl_s - passed_s)

    def check(self) -> None:
        """Raises LeaseLost unless it is alive."""
        if not self.is_alive:
            raise self._lost_error()

    async def lost(self) -> None:
        """Returns when it is lost; never, if it is ended by this program."""
        await asyncio.shield(self._on_lost)

    async def while_alive(self, work: Coroutine[Any, Any, Result]) -> Result:
        """The result of ``work``, which is cancelled when the lease is lost. Raises LeaseLost then."""
        task = self._loop.create_task(work)
        waited_for: set[asyncio.Future[Any]] = {task, self._on_lost}
        try:
            await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        if task.cancelled():
            self.check()
        return task.result()

    async def end(self) -> None:
        """Revokes it, so its keys are gone at once. If the store cannot be reached, they go when its time is up."""
        if self._has_ended:
            return
        self._has_ended = True
        self._stop()
        if self._kept is not None and self._loss is None:
            with suppress(LeaseNotFound):
                await self._revoke(self._kept.id)

    async def _revoke(self, lease_id: int) -> None:
        try:
            await self._calls.revoke(lease_id)
        except LeaseNotFound:
            raise
        except DLedgerError as refusal:
            logger.debug("lease %x ends by itself, as it cannot be revoked: %s", lease_id, refusal)

    # Keeping it ------------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        while True:
            kept = self._granted
            await asyncio.sleep(kept.sent_s + kept.ttl_s / KEPT_PER_TTL - self._loop.time())
            suspended = suspended_s()
            try:
                self._take(await self._calls.keep_alive(kept.id, 1000 * max(0.001, self.left_s)), suspended)
            except LeaseNotFound:
                self._lose("the store has ended it")
                return
            except DLedgerError as refusal:
                if refusal.code is Code.SHUTTING_DOWN:
                    return  # the client is closed: the time of the lease runs out
                logger.debug("lease %x is not kept alive yet: %s", kept.id, refusal)
                await asyncio.sleep(kept.ttl_s / RETRY_PART)

    def _take(self, kept: Kept, suspended: float) -> None:
        """``suspended``: as it was before the request was sent."""
        if self._loss is not None:
            return
        self._kept, self._suspended_s = kept, suspended
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._kept.sent_s + self._kept.ttl_s, self._on_time)

    def _on_time(self) -> None:
        if not self._has_ended:
            self._lose(f"no keepalive was answered for {self.ttl_s} s")

    def _lose(self, why: str) -> None:
        self._loss = LeaseLost(f"lease {self.id:x} is lost: {why}; what rests on it may be another's now")
        release(self._on_lost)
        self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._keeper is not None:
            self._keeper.cancel()

    @property
    def _granted(self) -> Kept:
        if self._kept is None:
            raise error(Code.LEASE_LOST, "the lease is not granted: use it inside `async with store.lease(…)`")
        return self._kept

    def _lost_error(self) -> LeaseLost:
        if self._loss is not None:
            return LeaseLost(str(self._loss))
        if self._has_ended:
            return LeaseLost(f"lease {self.id:x} was ended by this program")
        return LeaseLost(f"lease {self._granted.id:x} is lost: its time is up")


async def bounded(work: Awaitable[Result], wait_ms: float | None, what: str) -> Result:
    """``work``, for so long at most. Raises DeadlineExceeded."""
    try:
        async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
            return await work
    except TimeoutError:
        raise error(Code.TIMEOUT, f"{what} within {wait_ms:g} ms") from None

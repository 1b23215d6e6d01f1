"""When leases expire, by the leader's monotonic clock. No IO: whoever uses it says what time it is.

Expiry is not in the log. The leader decides it, and writes a command that counts in its own term alone. A new leader
gives every lease its full time again, and an election timeout on top. So a lease may live longer than was said, and
never shorter:

* a lease is due no earlier than its TTL after the last keepalive that was answered, or after its grant;
* a lease that is due is not renewed: a keepalive waits until the expiry's outcome is known, and answers by that;
* the expiry names the grant, so it does nothing to a lease of the same id that was granted since.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from dledger.store.commands import Expired
from dledger.store.leases import Lease, Leases

EXPIRIES_PER_S = 10_000
"""etcd revokes 1,000 in a second, each by a command of its own. Here a command carries many."""
_BURST_S = 0.1
_SPARE_ENTRIES = 64


class Keepalive(Enum):
    RENEWED = auto()
    WAIT = auto()
    """The lease is due. Ask again once its expiry is applied, or is known not to be (``undone``)."""
    UNKNOWN = auto()
    """There is no such lease."""


class Renewal(NamedTuple):
    outcome: Keepalive
    ttl_s: int = 0
    """0 unless it was renewed."""


@dataclass(slots=True)
class _Timed:
    lease: Lease
    due_s: float
    is_expiring: bool = False
    """A command that ends it may be on its way."""


class LeaseClock:
    """Of a leader, for one term: another term's has a clock of its own. ``leases`` are those of the state, which the
    clock looks at and does not change; they change as commands are applied."""

    def __init__(self, leases: Leases, now_s: float, extra_s: float, *, expiries_per_s: int = EXPIRIES_PER_S) -> None:
        """``extra_s``: the election timeout, for leases that were granted under leaders before."""
        self._leases = leases
        self._rate = expiries_per_s
        self._budget = self._most = max(1.0, expiries_per_s * _BURST_S)
        self._budget_at_s = now_s
        self._seen_serial = leases.serial
        self._timed = {each.id: _Timed(each, now_s + each.ttl_s + extra_s) for each in leases}
        self._queue = [(timed.due_s, lease_id) for lease_id, timed in self._timed.items()]
        """One entry for each that is timed; no later than it is due."""
        heapify(self._queue)

    def take_in(self, now_s: float) -> None:
        """Begins to time what was granted meanwhile. To be called soon after commands were applied."""
        for lease in self._leases.granted_since(self._seen_serial):
            self._timed[lease.id] = _Timed(lease, now_s + lease.ttl_s)
            heappush(self._queue, (now_s + lease.ttl_s, lease.id))
        self._seen_serial = self._leases.serial
        if len(self._queue) > 2 * len(self._leases) + _SPARE_ENTRIES:
            self._drop_ended()

    def _drop_ended(self) -> None:
        self._timed = {each.lease.id: each for each in self._timed.values() if self._exists(each.lease)}
        self._queue = [(each.due_s, each.lease.id) for each in self._timed.values()]
        heapify(self._queue)

    def _exists(self, lease: Lease) -> bool:
        known = self._leases.get(lease.id)
        return known is not None and known.serial == lease.serial

    def _timed_of(self, lease_id: int, now_s: float) -> _Timed | None:
        self.take_in(now_s)
        timed = self._timed.get(lease_id)
        return timed if timed is not None and self._exists(timed.lease) else None

    def renew(self, lease_id: int, now_s: float) -> Renewal:
        """For a keepalive that is answered now. The leadership was confirmed in a round that began after the keepalive
        came."""
        timed = self._timed_of(lease_id, now_s)
        if timed is None:
            return Renewal(Keepalive.UNKNOWN)
        if timed.is_expiring or now_s >= timed.due_s:
            return Renewal(Keepalive.WAIT)
        timed.due_s = max(timed.due_s, now_s + timed.lease.ttl_s)
        return Renewal(Keepalive.RENEWED, timed.lease.ttl_s)

    def remaining_s(self, lease_id: int, now_s: float) -> float | None:
        """Until it is due, 0 if it is; None: there is no such lease."""
        timed = self._timed_of(lease_id, now_s)
        return None if timed is None else max(0.0, timed.due_s - now_s)

    def expire(self, now_s: float) -> list[Expired]:
        """Those that are to be ended now, by a command (``commands.expire_command``). What is more than the rate allows
        comes later. None comes again before ``undone``."""
        self.take_in(now_s)
        self._budget = min(self._most, self._budget + self._rate * (now_s - self._budget_at_s))
        self._budget_at_s = now_s
        expired: list[Expired] = []
        while self._queue and self._queue[0][0] <= now_s and self._budget >= 1:
            _, lease_id = heappop(self._queue)
            timed = self._timed.get(lease_id)
            if timed is None or timed.is_expiring:
                continue
            if not self._exists(timed.lease):
                del self._timed[lease_id]
            elif timed.due_s > now_s:
                heappush(self._queue, (timed.due_s, lease_id))
            else:
                timed.is_expiring = True
                self._budget -= 1
                expired.append(Expired(lease_id, timed.lease.serial))
        return expired

    def undone(self, expired: Iterable[Expired]) -> None:
        """The command with these is surely not applied, nor will it be: they are due again."""
        for each in expired:
            timed = self._timed.get(each.lease_id)
            if timed is not None and timed.lease.serial == each.serial and timed.is_expiring:
                timed.is_expiring = False
                heappush(self._queue, (timed.due_s, each.lease_id))

    def next_due_s(self) -> float | None:
        """When ``expire`` has to be called at the latest; None: there is nothing to expire."""
        return self._queue[0][0] if self._queue else None

"""The truth of leases: when each was granted, when it ended, and until when it was promised to live.

All times are true ones: the world's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf

from dledger.store.leases import Leases
from dledger.v1 import store_pb2
from tests.simulation.violation import Violation


@dataclass(slots=True)
class LeaseLife:
    """One grant of an id."""

    serial: int
    ttl_s: int
    began_s: float
    promised_s: float
    """No leader's clock lets it expire before."""
    ended_s: float = inf
    has_expired: bool = False


class LeaseTruth:
    def __init__(self, fastest: float, hit: Callable[[str], None]) -> None:
        """``fastest``: the rate of the fastest clock that there can be."""
        self._fastest = fastest
        self._hit = hit
        self._lives: dict[int, list[LeaseLife]] = defaultdict(list)
        """By id, the last one last."""

    def applied(self, command: store_pb2.StoreCommand, leases: Leases, now_s: float) -> None:
        """``leases``: of the state behind the command."""
        kind = command.WhichOneof("kind")
        if kind == "grant":
            self._granted(leases, now_s)
        elif kind == "revoke":
            self._ended([command.revoke], leases, now_s, is_expiry=False)
        elif kind == "expire":
            self._ended(command.expire.leases, leases, now_s, is_expiry=True)

    def _granted(self, leases: Leases, now_s: float) -> None:
        for lease in leases.granted_since(leases.serial - 1):
            lives = self._lives[lease.id]
            if not lives or lives[-1].serial != lease.serial:
                life = LeaseLife(lease.serial, lease.ttl_s, now_s, now_s + self._least_s(lease.ttl_s))
                lives.append(life)

    def _ended(self, named: Iterable[store_pb2.RevokeLease], leases: Leases, now_s: float, *, is_expiry: bool) -> None:
        for each in named:
            lives = self._lives.get(each.id)
            present = leases.get(each.id)
            if not lives or lives[-1].ended_s < inf or (present is not None and present.serial == lives[-1].serial):
                self._hit("branch end of no lease")
                continue
            life = lives[-1]
            self._hit("branch lease expired" if is_expiry else "branch lease revoked")
            life.ended_s, life.has_expired = now_s, is_expiry
            if is_expiry and now_s < life.promised_s:
                left_s = life.promised_s - now_s
                raise Violation("no lease ends before its time", f"lease {each.id} had {left_s:.3f} s left")

    def _least_s(self, ttl_s: int) -> float:
        """So long at least that lasts by any clock."""
        return ttl_s / self._fastest

    # What clients are told ---------------------------------------------------------------------------------------

    def _during(self, lease_id: int, since_s: float, until_s: float) -> list[LeaseLife]:
        lives = self._lives.get(lease_id, ())
        return [each for each in lives if each.began_s <= until_s and each.ended_s >= since_s]

    def kept_alive(self, lease_id: int, sent_s: float, now_s: float) -> None:
        """A keepalive that was sent at ``sent_s`` is answered now: the lease lives."""
        known = self._during(lease_id, sent_s, now_s)
        if not known:
            raise Violation("no lease that ended is kept alive", f"lease {lease_id}, by a keepalive of {sent_s:.3f}")
        if len(known) > 1:
            return
        (life,) = known
        promised_s = sent_s + self._least_s(life.ttl_s)
        if life.has_expired and life.ended_s < promised_s:
            raise Violation(
                "no lease ends before its time",
                f"lease {lease_id} expired at {life.ended_s:.3f}, a keepalive of {sent_s:.3f} was answered",
            )
        life.promised_s = max(life.promised_s, promised_s)

    def said_to_be_gone(self, lease_id: int, sent_s: float, now_s: float) -> None:
        for life in self._during(lease_id, sent_s, now_s):
            if life.began_s < sent_s and life.ended_s > now_s:
                raise Violation("a lease that lives is there", f"lease {lease_id} of {life.began_s:.3f}")

    def said_to_live(self, lease_id: int, sent_s: float, now_s: float) -> None:
        if not self._during(lease_id, sent_s, now_s):
            raise Violation("a lease that ended is gone", f"lease {lease_id}, asked at {sent_s:.3f}")

    @property
    def have_ended(self) -> bool:
        """All of them."""
        return all(lives[-1].ended_s < inf for lives in self._lives.values())

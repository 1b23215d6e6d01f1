"""Leases by their clients' clocks: none ends early, late, or twice.

A client knows bounds of the server's times. A renewal, a grant or an answered keepalive, took place between its
invocation and its completion. So

* The lease lives at least until the renewal's invocation + TTL. No answer before says "gone".
* Without another renewal it is gone by the renewal's completion + TTL + ``Bounds.late_s``. No read invoked later shows
  it. A new leader gives every lease its full time again. So a disturbance of the leader before this moment puts it off:
  to the end of the disturbance + TTL + ``late_s``.
* After an answer has said "gone", no keepalive invoked later is answered, and no read shows the lease again.

A keepalive of unknown outcome may be a renewal at any time behind its invocation: from then on nothing is late. A
revoke of unknown outcome may end the lease at any time behind its invocation: from then on nothing is early.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from dledger.kernels.history import FAIL, INFO, OK
from dledger.kernels.kernel import Findings
from dledger.kernels.store.timeline import Timeline

MOST_EXAMPLES = 5
SECOND_NS = 1_000_000_000
VIOLATIONS = (
    "early_expiries",
    "late_expiries",
    "revived_leases",
    "lived_on_after_revoke",
    "short_grants",
    "doubled_leases",
)


class Kind(Enum):
    GRANT = "grant"
    KEEP_ALIVE = "keep-alive"
    REVOKE = "revoke"
    LOOK = "look"
    """A read of a key of the lease, or of the lease itself, as of the moment of some leader."""


@dataclass(frozen=True, slots=True)
class LeaseOperation:
    id: int
    kind: Kind
    lease: int
    invoked_ns: int
    completed_ns: int
    outcome: str = OK
    ttl_s: int = 0
    """As it was answered to a grant or a keepalive; of a keepalive, 0: there is no such lease."""
    asked_ttl_s: int = 0
    is_there: bool = True
    """Of a look."""

    @property
    def renews(self) -> bool:
        is_renewal = self.kind is Kind.GRANT or (self.kind is Kind.KEEP_ALIVE and self.ttl_s > 0)
        return self.outcome == OK and is_renewal

    @property
    def says_gone(self) -> bool:
        if self.outcome != OK:
            return False
        if self.kind is Kind.LOOK:
            return not self.is_there
        return self.kind is Kind.KEEP_ALIVE and self.ttl_s <= 0

    @property
    def says_there(self) -> bool:
        return self.renews or (self.outcome == OK and self.kind is Kind.LOOK and self.is_there)

    def __str__(self) -> str:
        told = f"ttl {self.ttl_s}" if self.kind is not Kind.LOOK else "there" if self.is_there else "gone"
        times = f"{self.invoked_ns / SECOND_NS:.3f}–{self.completed_ns / SECOND_NS:.3f} s"
        return f"operation {self.id}: {self.kind.value} {self.lease:x} {self.outcome} {told} at {times}"


class Disturbance(NamedTuple):
    """A time without a leader, or with several of them."""

    began_ns: int
    ended_ns: int


class Bounds(NamedTuple):
    late_s: float = 3.0
    """From the end of a lease's time to when it is gone at the latest."""
    rate: float = 1.0
    """A clock runs at most so many times as fast as another one."""


BOUNDS = Bounds()


class LeaseCheck:
    """Of all leases. ``unjudged``: perhaps they were renewed, or revoked, unheard of. ``latest_ms``: the longest time
    from the end of a lease to the first "gone", without a disturbance.

    * early_expiries: an answer said "gone" before the lease's time was over;
    * late_expiries: a read showed it too long after its time;
    * revived_leases: it was there after an answer had said "gone";
    * lived_on_after_revoke: it was there after its revoke was answered;
    * short_grants: less time was granted than was asked for;
    * doubled_leases: one id was granted twice.
    """

    def __init__(
        self, operations: Iterable[LeaseOperation], disturbances: Iterable[Disturbance] = (), bounds: Bounds = BOUNDS
    ) -> None:
        self._bounds = bounds
        self._disturbances = sorted(disturbances)
        self._counts = dict.fromkeys(("leases", "keepalives", "expired", "unjudged", "latest_ms"), 0)
        self._found = dict.fromkeys(VIOLATIONS, 0)
        self._examples: list[str] = []
        by_lease: defaultdict[int, list[LeaseOperation]] = defaultdict(list)
        for each in operations:
            if each.outcome != FAIL:
                by_lease[each.lease].append(each)
        for mine in by_lease.values():
            self._judge(sorted(mine, key=lambda each: each.invoked_ns))

    @property
    def findings(self) -> Findings:
        return Findings(self._counts, self._found, tuple(self._examples))

    def _against(self, violation: str, *operations: LeaseOperation) -> None:
        self._found[violation] += 1
        if len(self._examples) < MOST_EXAMPLES:
            self._examples.append(f"{violation}: {'; '.join(map(str, operations))}")

    def _judge(self, mine: Sequence[LeaseOperation]) -> None:
        grants = [each for each in mine if each.kind is Kind.GRANT and each.outcome == OK]
        gone = min((each for each in mine if each.says_gone), key=lambda each: each.completed_ns, default=None)
        self._counts["leases"] += bool(grants)
        self._counts["keepalives"] += sum(each.renews and each.kind is Kind.KEEP_ALIVE for each in mine)
        self._counts["expired"] += gone is not None
        self._counts["unjudged"] += any(each.outcome == INFO for each in mine)
        for other in grants[1:]:
            self._against("doubled_leases", grants[0], other)
        for grant in grants:
            if grant.ttl_s < grant.asked_ttl_s:
                self._against("short_grants", grant)
        if gone is not None:
            self._measure(mine, gone)
        self._judge_early(mine)
        self._judge_late(mine)
        self._judge_revived(mine, gone)

    def _measure(self, mine: Sequence[LeaseOperation], gone: LeaseOperation) -> None:
        last_ns = max((each.completed_ns + each.ttl_s * SECOND_NS for each in mine if each.renews), default=None)
        is_plain = all(each.outcome == OK and each.kind is not Kind.REVOKE for each in mine)
        is_disturbed = any(
            each.began_ns < gone.completed_ns and each.ended_ns > mine[0].invoked_ns for each in self._disturbances
        )
        if last_ns is None or not is_plain or is_disturbed:
            return
        self._counts["latest_ms"] = max(self._counts["latest_ms"], (gone.completed_ns - last_ns) // 1_000_000)

    def _judge_early(self, mine: Sequence[LeaseOperation]) -> None:
        """Each renewal against the first "gone" behind its invocation."""
        revoked_ns = min((each.invoked_ns for each in mine if each.kind is Kind.REVOKE), default=None)
        gone = [each for each in mine if each.says_gone and (revoked_ns is None or each.completed_ns < revoked_ns)]
        for each in mine:
            if each.renews:
                until_ns = each.invoked_ns + int(each.ttl_s * SECOND_NS / self._bounds.rate)
                early = next((other for other in gone if each.invoked_ns <= other.completed_ns < until_ns), None)
                if early is not None:
                    self._against("early_expiries", each, early)

    def _judge_late(self, mine: Sequence[LeaseOperation]) -> None:
        for look in mine:
            if look.kind is not Kind.LOOK or not look.says_there:
                continue
            before = [each for each in mine if each.invoked_ns <= look.completed_ns and each is not look]
            if any(each.kind is Kind.KEEP_ALIVE and each.outcome == INFO for each in before):
                continue
            renewals = [each for each in before if each.renews]
            if not renewals:
                continue
            last = max(renewals, key=lambda each: each.completed_ns + each.ttl_s * SECOND_NS)
            if look.invoked_ns > self._due_ns(last):
                self._against("late_expiries", last, look)

    def _due_ns(self, renewal: LeaseOperation) -> int:
        """When the lease is gone at the latest."""
        life_ns = int((renewal.ttl_s * self._bounds.rate + self._bounds.late_s) * SECOND_NS)
        due_ns = renewal.completed_ns + life_ns
        for each in self._disturbances:
            if each.began_ns < due_ns and each.ended_ns > renewal.invoked_ns:
                due_ns = max(due_ns, each.ended_ns + life_ns)
        return due_ns

    def _judge_revived(self, mine: Sequence[LeaseOperation], gone: LeaseOperation | None) -> None:
        revoked = [each for each in mine if each.kind is Kind.REVOKE and each.outcome == OK]
        end = min(revoked, key=lambda each: each.completed_ns, default=None)
        for each in mine:
            if not each.says_there or each.kind is Kind.GRANT:
                continue
            if gone is not None and each.invoked_ns > gone.completed_ns:
                self._against("revived_leases", gone, each)
            elif end is not None and each.invoked_ns > end.completed_ns:
                self._against("lived_on_after_revoke", end, each)


def check_ends(timeline: Timeline, leases: Mapping[str, int]) -> Findings:
    """``leases``: each key with its lease; nobody else deletes it.

    * split_expiries: the keys of one lease were deleted at several revisions.
    """
    ends: defaultdict[int, set[int]] = defaultdict(set)
    for change in timeline.changes:
        if change.pair is None and change.key in leases:
            ends[leases[change.key]].add(change.revision)
    split = {lease: revisions for lease, revisions in ends.items() if len(revisions) > 1}
    examples = [f"split_expiries: lease {lease:x} at {sorted(revisions)}" for lease, revisions in split.items()]
    return Findings({"ended_leases": len(ends)}, {"split_expiries": len(split)}, tuple(examples[:MOST_EXAMPLES]))

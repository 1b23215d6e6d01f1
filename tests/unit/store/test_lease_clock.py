"""A lease is never ended before its time since the last keepalive that was answered, and soon after it."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dledger.store.lease_clock import Keepalive, LeaseClock
from dledger.store.leases import Leases

ELECTION_S = 1.0


def granted(*ttls: int) -> Leases:
    leases = Leases()
    for at, ttl_s in enumerate(ttls, start=1):
        leases.grant(at, ttl_s)
    return leases


def ids(clock: LeaseClock, now_s: float) -> list[int]:
    return [each.lease_id for each in clock.expire(now_s)]


def test_after_an_election_every_lease_has_its_full_time_and_an_election_timeout() -> None:
    clock = LeaseClock(granted(5), 100.0, ELECTION_S)
    assert ids(clock, 105.9) == []
    assert ids(clock, 106.0) == [1]


def test_a_lease_that_is_granted_in_the_term_has_its_time_alone() -> None:
    leases = granted()
    clock = LeaseClock(leases, 100.0, ELECTION_S)
    leases.grant(7, 5)
    clock.take_in(101.0)
    assert ids(clock, 105.9) == []
    assert ids(clock, 106.0) == [7]


def test_a_keepalive_gives_the_full_time_from_its_answer_on() -> None:
    clock = LeaseClock(granted(5), 0.0, 0.0)
    assert clock.renew(1, 4.0) == (Keepalive.RENEWED, 5)
    assert ids(clock, 8.9) == []
    assert ids(clock, 9.0) == [1]


def test_a_keepalive_shortens_nothing() -> None:
    clock = LeaseClock(granted(5), 0.0, 10.0)
    clock.renew(1, 1.0)
    assert clock.remaining_s(1, 1.0) == 14.0


def test_a_keepalive_waits_for_the_outcome_of_an_expiry() -> None:
    clock = LeaseClock(granted(5), 0.0, 0.0)
    expired = clock.expire(5.0)
    assert clock.renew(1, 5.0).outcome is Keepalive.WAIT
    clock.undone(expired)
    assert clock.expire(6.0) == expired


def test_a_keepalive_of_a_due_lease_waits_even_before_its_expiry_is_written() -> None:
    clock = LeaseClock(granted(5), 0.0, 0.0)
    assert clock.renew(1, 5.0).outcome is Keepalive.WAIT


def test_a_keepalive_of_a_lease_that_is_gone_says_so() -> None:
    leases = granted(5)
    clock = LeaseClock(leases, 0.0, 0.0)
    lease = leases.get(1)
    assert lease is not None
    leases.remove(lease)
    assert clock.renew(1, 1.0).outcome is Keepalive.UNKNOWN


def test_an_id_that_is_granted_again_has_the_new_grants_time() -> None:
    leases = granted(5)
    clock = LeaseClock(leases, 0.0, 0.0)
    lease = leases.get(1)
    assert lease is not None
    leases.remove(lease)
    leases.grant(1, 60)
    clock.take_in(4.0)
    assert clock.expire(30.0) == []
    assert [each.serial for each in clock.expire(64.0)] == [2]


def test_ten_thousand_leases_that_are_due_together_are_all_named_within_two_seconds() -> None:
    clock = LeaseClock(granted(*[5] * 10_000), 0.0, 0.0)
    named = {each for tick in range(20) for each in ids(clock, 5.0 + tick / 10)}
    assert len(named) == 10_000


def test_no_more_are_named_in_a_second_than_the_rate_allows() -> None:
    clock = LeaseClock(granted(*[5] * 1_000), 0.0, 0.0, expiries_per_s=100)
    named = [each for tick in range(100) for each in ids(clock, 5.0 + tick / 100)]
    assert 95 <= len(named) <= 110


def test_leases_that_come_and_go_leave_nothing_behind() -> None:
    leases = granted()
    clock = LeaseClock(leases, 0.0, 0.0)
    for at in range(1, 2_000):
        lease = leases.grant(at, 1_000_000)
        clock.take_in(at)
        leases.remove(lease)
    clock.take_in(2_000.0)
    assert len(clock._timed) < 100


class ClockIsTrue(RuleBasedStateMachine):
    """Over grants, keepalives, revokes and expiries in any order, some of which come to nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.leases = Leases()
        self.now_s = 0.0
        self.clock = LeaseClock(self.leases, 0.0, ELECTION_S)
        self.promised: dict[int, float] = {}
        """By serial: until when it is promised to live."""

    @rule(lease_id=st.integers(1, 4), ttl_s=st.integers(2, 6))
    def grant(self, lease_id: int, ttl_s: int) -> None:
        if self.leases.get(lease_id) is None:
            lease = self.leases.grant(lease_id, ttl_s)
            self.promised[lease.serial] = self.now_s + ttl_s
            self.clock.take_in(self.now_s)

    @rule(lease_id=st.integers(1, 4))
    def revoke(self, lease_id: int) -> None:
        lease = self.leases.get(lease_id)
        if lease is not None:
            self.leases.remove(lease)

    @rule(lease_id=st.integers(1, 4))
    def keepalive(self, lease_id: int) -> None:
        lease, renewal = self.leases.get(lease_id), self.clock.renew(lease_id, self.now_s)
        assert (renewal.outcome is Keepalive.UNKNOWN) == (lease is None)
        if lease is not None and renewal.outcome is Keepalive.RENEWED:
            self.promised[lease.serial] = self.now_s + lease.ttl_s

    @rule(passed_s=st.sampled_from([0.1, 1.0, 3.0]))
    def time_passes(self, passed_s: float) -> None:
        self.now_s += passed_s

    @rule(is_applied=st.booleans())
    def expire(self, is_applied: bool) -> None:
        expired = self.clock.expire(self.now_s)
        for each in expired:
            assert self.promised[each.serial] <= self.now_s
            lease = self.leases.get(each.lease_id)
            assert lease is not None
            assert lease.serial == each.serial
            if is_applied:
                self.leases.remove(lease)
        self.clock.undone(expired)
        if is_applied:
            overdue = [each for each in self.leases if self.promised[each.serial] + ELECTION_S <= self.now_s]
            assert overdue == []

    @rule()
    def another_term(self) -> None:
        self.clock = LeaseClock(self.leases, self.now_s, ELECTION_S)
        for lease in self.leases:
            self.promised[lease.serial] = self.now_s + lease.ttl_s

    @invariant()
    def what_is_left_is_no_less_than_promised(self) -> None:
        for lease in self.leases:
            left_s = self.clock.remaining_s(lease.id, self.now_s)
            assert left_s is not None
            assert left_s >= self.promised[lease.serial] - self.now_s - 1e-9


TestClockIsTrue = ClockIsTrue.TestCase
TestClockIsTrue.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)

"""A backend without a log: every command is applied where it is submitted, at once. Its leases run by the loop's
clock, and it has sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from dledger.common.errors import Code, error
from dledger.server.etcd.backend import ClusterMember, LeaseTimes
from dledger.server.etcd.refusals import BAD_LEADER_TRANSFEREE, Refusal
from dledger.server.store_service import NOT_APPLIED
from dledger.statemachine.sessions import Answer, Sessions
from dledger.store.commands import expire_command
from dledger.store.lease_clock import Keepalive, LeaseClock
from dledger.store.machine import Store
from dledger.store.quota import DEFAULT_QUOTA_BYTES
from dledger.store.refusals import StoreCode, StoreRefused
from dledger.store.watch import WatchHub

CLEAN_AT_ONCE = 100
TICK_S = 0.01
"""Expiries that the clock puts off are asked for again after so long."""


class LocalBackend:
    cluster_id = 0xC1
    member_id = 0xA1
    term = 2
    leader_id = 0xA1
    quota_bytes = DEFAULT_QUOTA_BYTES
    is_there = True

    def __init__(self) -> None:
        self.store = Store()
        self.applied_index = 0
        self.address = ""
        self.watches = WatchHub(self.store.pairs)
        self._loop = asyncio.get_running_loop()
        self._clock = LeaseClock(self.store.leases, self._loop.time(), 0)
        self._timer: asyncio.TimerHandle | None = None
        self.lost = asyncio.Event()
        """For tests: the leader is gone for good."""
        self.sessions = Sessions()
        self._opened = 0

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @property
    def commit_index(self) -> int:
        return self.applied_index

    def members(self) -> Sequence[ClusterMember]:
        return [ClusterMember(self.member_id, "local", ["http://127.0.0.1:1"], [f"http://{self.address}"])]

    async def submit(self, command: bytes) -> Any:
        return self._apply(command)

    def _apply(self, command: bytes) -> Any:
        return self.store.decode_answer(self._applied(command))

    def _applied(self, command: bytes) -> bytes:
        self.applied_index += 1
        answer = self.store.apply(command)
        self.watches.take_in(self.store.pairs)
        self.store.clean(CLEAN_AT_ONCE)
        self._set_timer()
        return answer

    async def open_session(self) -> int:
        self._opened += 1
        self.sessions.open(self._opened)
        return self._opened

    async def submit_in_session(self, session: int, request: int, acknowledged: int, command: bytes) -> Any:
        found = self.sessions.use(session, request, acknowledged)
        if found is None:
            raise error(Code.SESSION_EXPIRED, f"session {session} has ended", **NOT_APPLIED)
        if request not in found.answers:
            found.answers[request] = self._first_answer(command)
        answer = found.answers[request]
        if answer.is_refusal:
            raise self.store.decode_refusal(answer.value)
        return self.store.decode_answer(answer.value)

    def _first_answer(self, command: bytes) -> Answer:
        try:
            return Answer(self._applied(command))
        except StoreRefused as refused:
            return Answer(self.store.encode_refusal(refused), is_refusal=True)

    async def until_there(self) -> None:
        """It always is."""

    async def barrier(self) -> None:
        """There is nobody who could know more."""

    def _set_timer(self) -> None:
        now_s = self._loop.time()
        self._clock.take_in(now_s)
        if self._timer is not None:
            self._timer.cancel()
        due_s = self._clock.next_due_s()
        self._timer = None if due_s is None else self._loop.call_at(max(due_s, now_s + TICK_S), self._expire)

    def _expire(self) -> None:
        if expired := self._clock.expire(self._loop.time()):
            self._apply(expire_command(expired))
        self._set_timer()

    async def keep_alive(self, lease_id: int) -> int:
        renewal = self._clock.renew(lease_id, self._loop.time())
        if renewal.outcome is Keepalive.WAIT:
            self._expire()  # here an expiry is never on its way
        if renewal.outcome is not Keepalive.RENEWED:
            raise StoreRefused(StoreCode.LEASE_NOT_FOUND)
        return renewal.ttl_s

    async def lease_times(self, lease_id: int) -> LeaseTimes:
        lease = self.store.leases.get(lease_id)
        remaining_s = self._clock.remaining_s(lease_id, self._loop.time())
        if lease is None or remaining_s is None:
            raise StoreRefused(StoreCode.LEASE_NOT_FOUND)
        return LeaseTimes(lease.ttl_s, int(remaining_s))

    async def move_leader(self, target_id: int) -> None:
        if target_id != self.member_id:
            raise Refusal(BAD_LEADER_TRANSFEREE)

    async def leader_lost(self) -> None:
        await self.lost.wait()

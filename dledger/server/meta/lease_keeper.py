"""The leases of the store, while this node leads `meta`: kept alive, and ended when their time is up.

The clock of the leases is this leader's, for one term (store/lease_clock.py). A command ends leases, and counts in that
term alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dledger.common.errors import Code, DLedgerError, OutcomeUnknown, error
from dledger.common.futures import release
from dledger.common.types import Consistency
from dledger.group.replica import Replica
from dledger.statemachine.runner import Runner
from dledger.store.commands import Expired, expire_command
from dledger.store.lease_clock import Keepalive, LeaseClock
from dledger.store.leases import Leases
from dledger.store.machine import Store

logger = logging.getLogger(__name__)

RETRY_S = 0.1
"""A refused expiry, or one beyond the clock's rate, is tried again after so long."""
LOOK_S = 1.0
"""At the latest the leader looks again after so long."""


class LeaderLeaseTimes(NamedTuple):
    """Of one lease, by the leader's clock."""

    granted_s: int
    """0: no such lease exists."""
    remaining_s: int
    commit_index: int
    """Of the last record committed by the time of the leader's answer."""


class LeaseKeeper:
    """Of one node. ``run`` goes on all the time, and works while the node leads."""

    def __init__(self, runner: Runner[Store], replica: Callable[[], Replica]) -> None:
        """``replica`` gives the replica of `meta`, and raises a passing error while the node has none."""
        self._runner = runner
        self._replica = replica
        self._clock: LeaseClock | None = None
        self._leases: Leases | None = None
        """Those of the clock."""
        self._term = 0
        """The clock's."""
        self._seen_serial = 0
        """Of the last grant."""
        self._awake = asyncio.Event()
        self._outcome: asyncio.Future[None] | None = None
        """Done when an expiry has its outcome, or the clock is gone."""
        self._submitting: set[asyncio.Task[None]] = set()

    def on_applied(self, *, leads: bool) -> None:
        """Commands were applied on this node, which leads or does not."""
        serial = self._runner.machine.leases.serial
        if leads and (self._clock is None or serial != self._seen_serial):
            self._awake.set()
        self._seen_serial = serial

    async def run(self) -> None:
        """Until it is cancelled."""
        try:
            while True:
                self._awake.clear()
                wait_s = self._look()
                try:
                    async with asyncio.timeout(wait_s):
                        await self._awake.wait()
                except TimeoutError:
                    pass  # it is time to look
        finally:
            for task in self._submitting:
                task.cancel()

    def _look(self) -> float:
        """Returns after how long to look again."""
        try:
            replica = self._replica()
        except DLedgerError:
            self._drop_clock()
            return LOOK_S
        clock = self._clock_of(replica)
        if clock is None:
            return LOOK_S
        now_s = replica.now_s()
        expired = clock.expire(now_s)
        if expired:
            task = asyncio.get_running_loop().create_task(self._end(clock, expired, self._term), name="expire-leases")
            self._submitting.add(task)
            task.add_done_callback(self._submitting.discard)
        due_s = clock.next_due_s()
        return LOOK_S if due_s is None else min(LOOK_S, max(RETRY_S, due_s - now_s))

    def _clock_of(self, replica: Replica) -> LeaseClock | None:
        """The clock of the present term; None while this node may not judge."""
        if not replica.machine.is_serving:
            self._drop_clock()
            return None
        leases = self._runner.machine.leases
        if self._clock is None or self._term != replica.term or self._leases is not leases:
            self._drop_clock()
            timings = replica.config.timings
            extra_s = timings.election_timeout_max_ms / 1000
            self._clock = LeaseClock(leases, replica.now_s(), extra_s)
            self._leases, self._term = leases, replica.term
        return self._clock

    def _drop_clock(self) -> None:
        self._clock = None
        release(self._outcome)

    async def _end(self, clock: LeaseClock, expired: Sequence[Expired], term: int) -> None:
        try:
            await self._runner.submit(expire_command(expired), term=term)
        except OutcomeUnknown as unknown:
            # It lies in this leader's log: applied in the end, or the term is over and the clock with it.
            logger.info("whether leases have ended is not known yet", extra={"leases": len(expired), "why": unknown})
        except DLedgerError as refusal:
            clock.undone(expired)
            logger.info("leases that are due could not be ended", extra={"leases": len(expired), "why": refusal})
        else:
            logger.debug("leases have ended", extra={"leases": len(expired)})
        finally:
            release(self._outcome)
            self._awake.set()

    # What the leader is asked ------------------------------------------------------------------------------------

    async def keep_alive(self, lease_id: int) -> int:
        """Gives the lease its full time again, and returns it in seconds; 0: no such lease exists. The leadership was
        confirmed after the call came. Raises as ``Replica.machine.check_serving``."""
        await self._confirm()
        while True:
            replica = self._replica()
            clock = self._serving_clock(replica)
            renewal = clock.renew(lease_id, replica.now_s())
            if renewal.outcome is not Keepalive.WAIT:
                return renewal.ttl_s
            await self._next_outcome()

    async def lease_times(self, lease_id: int) -> LeaderLeaseTimes:
        commit_index = await self._confirm()
        replica = self._replica()
        remaining_s = self._serving_clock(replica).remaining_s(lease_id, replica.now_s())
        lease = self._runner.machine.leases.get(lease_id)
        if lease is None or remaining_s is None:
            return LeaderLeaseTimes(0, 0, commit_index)
        return LeaderLeaseTimes(lease.ttl_s, int(remaining_s), commit_index)

    async def _confirm(self) -> int:
        """This node leads, and has applied all that was committed before the call. Returns the commit index."""
        replica = self._replica()
        replica.machine.check_serving()
        commit_index = (await replica.reader.read_point(Consistency.LINEARIZABLE)).commit_index
        await self._runner.wait_applied(commit_index)  # a grant that was just answered elsewhere may be among it
        return commit_index

    def _serving_clock(self, replica: Replica) -> LeaseClock:
        replica.machine.check_serving()
        clock = self._clock_of(replica)
        if clock is None:
            raise error(Code.LEADER_NOT_READY, "the leases of this leader are not timed yet; try again after a moment")
        return clock

    async def _next_outcome(self) -> None:
        """Waits for the outcome of an expiry: the lease is due."""
        self._awake.set()
        if self._outcome is None or self._outcome.done():
            self._outcome = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._outcome)

"""The way of a node's store to the node that leads: calls over simulated connections, as the forwarder's are.

A call that does not begin was surely not carried out. One that began and is not answered may have been, or be yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import NodeId
from dledger.group.replica import Replica
from dledger.server.meta.at_leader import CALL_TIMEOUT_S, AtLeader
from dledger.server.meta.lease_keeper import LeaderLeaseTimes
from tests.simulation.process import GoneError

if TYPE_CHECKING:
    from tests.simulation.host import SimHost
    from tests.simulation.life import GroupLife

T = TypeVar("T")

LATENCY_S = 0.0005
JITTER_S = 0.003
UNREACHABLE_SHARE = 0.5
"""Of the calls to a node that cannot be reached: no connection is there. Else one is, and nothing comes back on it."""
RESET_SHARE = 0.3
"""Of the calls that are lost: the connection ends. Else nothing comes back."""


class _Call(NamedTuple):
    make: Callable[[AtLeader], Awaitable[Any]]
    is_change: bool
    refusal: DLedgerError
    """What is raised where it surely did not begin."""
    answer: asyncio.Future[Any]
    """The caller's."""

    def unknown(self) -> DLedgerError:
        code = Code.TERM_CHANGED if self.is_change else Code.NETWORK_ERROR
        return error(code, "the connection to the leader ended, and no answer came")

    def late(self) -> DLedgerError:
        code = Code.WAIT_QUORUM_ACK_TIMEOUT if self.is_change else Code.TIMEOUT
        return error(code, f"the leader did not answer within {CALL_TIMEOUT_S:g} s")


class WayToLeader(AtLeader):
    """Of one life of a node."""

    def __init__(self, life: GroupLife, replica: Callable[[], Replica], random: Random) -> None:
        self._life = life
        self._replica = replica
        self._random = random
        self._world = life.seat.cluster.world
        self._network = life.seat.cluster.network

    async def append(self, records: Sequence[bytes]) -> int:
        return await self._ask(lambda leader: leader.append(records), is_change=True)

    async def read_index(self) -> int:
        return await self._ask(lambda leader: leader.read_index())

    async def keep_alive(self, lease_id: int) -> int:
        return await self._ask(lambda leader: leader.keep_alive(lease_id))

    async def lease_times(self, lease_id: int) -> LeaderLeaseTimes:
        return await self._ask(lambda leader: leader.lease_times(lease_id))

    # On the caller's side ----------------------------------------------------------------------------------------

    async def _ask(self, make: Callable[[AtLeader], Awaitable[T]], *, is_change: bool = False) -> T:
        refusal = self._replica().admission.not_leader()
        target = self._life.seat.cluster.hosts.get(NodeId(refusal.metadata.get("leader_id", "")))
        if target is None or target is self._life.seat.host:
            raise refusal
        call = _Call(make, is_change, refusal, self._life.process.create_future())
        self._travel(self._life.seat.id, target.id, lambda: self._arrive(target, call), lambda: self._lose(call))
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                answer: T = await call.answer
                return answer
        except TimeoutError:
            raise call.late() from None

    def _tell(self, call: _Call, failure: DLedgerError | None, answer: object = None) -> None:
        """In the caller's process, or nowhere."""

        def tell() -> None:
            if not call.answer.done() and failure is not None:
                call.answer.set_exception(failure)
            elif not call.answer.done():
                call.answer.set_result(answer)

        self._life.process.call_soon(tell)

    # On the wires ------------------------------------------------------------------------------------------------

    def _travel(self, source: NodeId, target: NodeId, arrive: Callable[[], None], lose: Callable[[], None]) -> None:
        fate = self._network.faults.judge(source, target, None)  # type: ignore[arg-type]  # rules look at the ends alone
        delay_s = fate.delay_s + LATENCY_S + self._random.expovariate(1 / JITTER_S)
        self._world.call_later(delay_s, lose if fate.is_dropped else arrive)

    def _lose(self, call: _Call) -> None:
        """It did not get there."""
        if self._random.random() < UNREACHABLE_SHARE:
            self._hit("call not sent")
            self._tell(call, call.refusal)
        else:
            self._break(call)

    def _break(self, call: _Call) -> None:
        """Nobody knows whether it got there."""
        self._hit("call without an answer")
        if self._random.random() < RESET_SHARE:
            self._tell(call, call.unknown())

    def _hit(self, what: str) -> None:
        self._life.seat.cluster.trace.hit(f"branch {what}", self._life.seat.name)

    # On the leader's side ----------------------------------------------------------------------------------------

    def _arrive(self, target: SimHost, call: _Call) -> None:
        life = target.present_life
        store = None if life is None else life.store
        if life is None or store is None or not store.is_open:
            self._tell(call, call.refusal)  # nothing listens there
            return
        self._hit("call to the leader")
        asked = life.process.ask(lambda: call.make(store.meta.here))
        asked.add_done_callback(lambda done: self._answered(target, call, done))

    def _answered(self, target: SimHost, call: _Call, done: asyncio.Future[Any]) -> None:
        failure = done.exception()
        if failure is not None and not isinstance(failure, DLedgerError | GoneError):
            self._world.fail(failure)
        elif isinstance(failure, GoneError):
            self._break(call)
        else:
            told = failure.copy() if failure is not None else None
            answer = None if failure is not None else done.result()
            ends = target.id, self._life.seat.id
            self._travel(*ends, lambda: self._tell(call, told, answer), lambda: self._break(call))

"""How the store's clients call nodes: any node, over connections that are slow at times, and end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from dledger.common.errors import Code, DLedgerError, OutcomeUnknown
from dledger.statemachine.submitter import NOT_APPLIED
from dledger.store.refusals import StoreRefused
from tests.simulation.answers import Answers
from tests.simulation.groups import SimGroup
from tests.simulation.process import GoneError
from tests.simulation.seat import Seat
from tests.simulation.store.seat_store import SeatStore

T = TypeVar("T")

LEADER_SHARE = 0.3
"""Of the calls: to whoever leads, or believes so."""
LATE_SHARE = 0.03
CANCELLED_SHARE = 0.7
"""Of the calls that their client gives up: the node hears of it, and ends the work."""
ON_THE_WAY = Code.NETWORK_ERROR, Code.TIMEOUT, Code.DISK_FULL, Code.DISK_ERROR
"""The node that was asked did not reach the leader, or was told so by it."""
OTHERS_SHARE = 0.05
"""Of the calls: to any node that is up. The rest are to members."""


class Unknown(Exception):
    """No answer came, or one that leaves the outcome open: of that ``code``."""

    def __init__(self, unknown: OutcomeUnknown | None = None) -> None:
        super().__init__(unknown)
        self.code = None if unknown is None else unknown.code
        self.changed_nothing = unknown is not None and NOT_APPLIED.items() <= unknown.metadata.items()
        """This attempt surely did not."""


class Caller:
    """Of one client."""

    def __init__(self, group: SimGroup, random: Random) -> None:
        self._group = group
        self._random = random
        self._trace = group.cluster.trace
        self._answers = Answers(group)

    def seat(self) -> Seat | None:
        """Some node to ask; None: none is up."""
        leading = self._group.leaders()
        if leading and self._random.random() < LEADER_SHARE:
            return self._random.choice(leading)
        up = self._group.up()
        if self._random.random() >= OTHERS_SHARE:
            up = [seat for seat in up if self._group.names(seat.id)]
        return self._random.choice(up) if up else None

    async def call(self, seat: Seat, work: Callable[[SeatStore], Awaitable[T]], timeout_s: float) -> T:
        """Raises Unknown where there is no answer, and where it leaves the outcome open. Raises StoreRefused, and a
        refusal that was judged: nothing was carried out."""
        try:
            question = self._answers.ask(seat)
            async with asyncio.timeout(timeout_s):
                await self._travel()
                answer = await self._ask(seat, work)
                await self._travel()
        except (TimeoutError, GoneError) as failure:
            raise Unknown from failure
        except OutcomeUnknown as unknown:
            self._trace.hit(f"branch store {unknown.code.name}", seat.name)
            raise Unknown(unknown) from unknown
        except DLedgerError as refusal:
            self._trace.hit(f"branch store refused {refusal.code.name}", seat.name)
            self._answers.refused(question, refusal, *ON_THE_WAY)
            raise
        if isinstance(answer, StoreRefused):
            raise answer
        return answer

    async def _travel(self) -> None:
        late_s = self._random.uniform(0.1, 1.0) if self._random.random() < LATE_SHARE else 0.0
        await asyncio.sleep(late_s + self._random.expovariate(1000))

    async def _ask(self, seat: Seat, work: Callable[[SeatStore], Awaitable[T]]) -> T | StoreRefused:
        life = seat.host.present_life
        store = None if life is None else life.store
        if life is None or store is None or not store.is_open:
            raise GoneError
        running: list[asyncio.Task[object]] = []

        async def run() -> T | StoreRefused:
            task = asyncio.current_task()
            assert task is not None
            running.append(task)
            try:
                return await work(store)
            except StoreRefused as refusal:
                return refusal

        try:
            return await life.process.ask(run)
        except asyncio.CancelledError:
            if running and self._random.random() < CANCELLED_SHARE:
                life.process.call_soon(running[0].cancel)
            raise

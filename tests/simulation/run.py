"""One seed: a safety phase full of trouble, then a liveness phase in which everything must come to rest."""

from __future__ import annotations

import asyncio
import gc
import logging
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any

from dledger.disk import reserve
from tests.simulation import machines
from tests.simulation.branches import LOGGED
from tests.simulation.clients import IsOver, PlainClient, ProducerClient, ReaderClient
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.contest import ContestClient
from tests.simulation.excuses import may_end
from tests.simulation.groups import SimGroup
from tests.simulation.life import GroupLife
from tests.simulation.machine_client import MachineClient
from tests.simulation.nemesis import USUAL, Nemesis
from tests.simulation.process import WorldLoop
from tests.simulation.replicas import check_equal, check_served
from tests.simulation.seat import Seat
from tests.simulation.trace import Trace
from tests.simulation.violation import Violation
from tests.support.virtual_time import run_virtual

SIZES = (1, 3, 3, 3, 5, 5, 5)
"""How many machines found the cluster, by chance. One alone grows to three and more."""
SAFETY_S = 30.0
"""At least; it goes on until the seed has had its share of trouble, at most ``MAX_SAFETY_S``."""
MAX_SAFETY_S = 120.0
MIN_ELECTIONS = 3
MIN_ACKNOWLEDGED = 500
"""Appends, of however many records each."""
MIN_READS = 50
PROGRESS_S = 15.0
"""A connected majority commits something within it."""
LIVENESS_S = 60.0
CHECK_S = 0.02
MANY_EVERY = 8
"""One seed of so many has many groups, the others have one beside the founding group."""
MANY = 9
"""Beside the founding group."""
UNSEEN_S = 3.0
"""So long at most nobody sees that a group stopped on a node that goes on."""
BROKEN = "the simulation itself: "
"""What ended a seed was no violation."""
RESERVE_BYTES = 64 * 1024
"""What each node keeps for a full disk: as much smaller as its segments are."""


@dataclass
class Outcome:
    """What one seed came to."""

    seed: int
    digest: str = ""
    failure: str = ""
    invariant: str = ""
    simulated_s: float = 0.0
    elections: int = 0
    acknowledged: int = 0
    """Appends."""
    hits: Counter[str] = field(default_factory=Counter)


class _BranchCounter(logging.Handler):
    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        name = LOGGED.get(record.msg)
        if name is not None:
            self._trace.hit(name)


def run_seed(seed: int, *, show: bool = False) -> Outcome:
    return run_with(_simulate, seed, show=show)


Simulate = Callable[[int, Trace, Outcome], Coroutine[Any, Any, None]]


def run_with(simulate: Simulate, seed: int, *, show: bool) -> Outcome:
    """Never raises: what went wrong is in the outcome."""
    trace = Trace(show=show)
    outcome = Outcome(seed)
    handler = _BranchCounter(trace)
    logger = logging.getLogger("dledger")
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = show
    gc.disable()  # a seed is over before it would pay
    reserve_bytes, reserve.RESERVE_BYTES = reserve.RESERVE_BYTES, RESERVE_BYTES
    try:
        run_virtual(simulate(seed, trace, outcome), limit_s=MAX_SAFETY_S + 1_000, loop_factory=WorldLoop)
    except BaseException as failure:
        if isinstance(failure, KeyboardInterrupt):
            raise
        outcome.failure = "".join(traceback.format_exception(failure))
        outcome.invariant = _invariant_of(failure)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
        gc.enable()
        reserve.RESERVE_BYTES = reserve_bytes
    outcome.digest = outcome.digest or trace.digest
    outcome.hits = trace.hits
    return outcome


def _invariant_of(failure: BaseException) -> str:
    if isinstance(failure, BaseExceptionGroup):
        return _invariant_of(failure.exceptions[0])
    return failure.invariant if isinstance(failure, Violation) else f"{BROKEN}{type(failure).__name__}"


async def _simulate(seed: int, trace: Trace, outcome: Outcome) -> None:
    cluster = SimulatedCluster(Random(seed).choice(SIZES), seed, trace)
    if len(cluster.hosts) == 1:
        trace.hit("branch founded alone")
    try:
        await Seed(seed, cluster, outcome).run()
    finally:
        outcome.digest = trace.digest
        await cluster.bury()


class Seed:
    least_acknowledged = MIN_ACKNOWLEDGED
    mix = USUAL

    def __init__(self, seed: int, cluster: SimulatedCluster, outcome: Outcome) -> None:
        self._seed = seed
        self._cluster = cluster
        self._outcome = outcome
        self._nemesis = Nemesis(cluster, Random(seed + 2), mix=self.mix)
        self._random = Random(seed + 4)
        self._began_s = cluster.world.time()

    async def run(self) -> None:
        await self._cluster.start()
        async with asyncio.TaskGroup() as tasks:
            checking = tasks.create_task(self._check_always(), name="check")
            telling = tasks.create_task(self._nemesis.directory.run(), name="directory")
            lasting = self.begin_lasting(tasks)
            await self._safety()
            await self._nemesis.settle()
            await self._progress()
            await self._nemesis.end()
            await self._rest()
            for task in (*lasting, telling, checking):
                task.cancel()
        self._check_removed()
        for group in self._groups:
            members = self._members_of(group)
            await check_equal(members, group.journal)
            await check_served(members, group.journal)
        self._account()

    def begin_lasting(self, _tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """What goes on until everything is at rest."""
        return []

    def is_at_rest(self) -> bool:
        """As far as it is not said of every log and its state machine."""
        return True

    # Safety ------------------------------------------------------------------------------------------------------

    @property
    def _spent_s(self) -> float:
        return self._cluster.world.time() - self._began_s

    def _has_its_share(self) -> bool:
        lost = self._cluster.trace.hits["fault sectors lost"]
        elections, acknowledged = self._cluster.watch.elections, self._acknowledged
        return elections >= MIN_ELECTIONS and acknowledged >= self.least_acknowledged and lost > 0

    def _is_enough(self) -> bool:
        return self._spent_s >= MAX_SAFETY_S or (self._spent_s >= SAFETY_S and self._has_its_share())

    async def _safety(self) -> None:
        cluster = self._cluster
        async with asyncio.TaskGroup() as working:
            self.begin_work(working, self._is_enough)
            working.create_task(self._nemesis.run(self._is_enough, lambda: self._spent_s > SAFETY_S), name="nemesis")
        if not self._has_its_share():
            lost = cluster.trace.hits["fault sectors lost"]
            raise Violation(
                "a seed has its share",
                f"after {self._spent_s:.0f} s {cluster.watch.elections} elections, {self._acknowledged} appends "
                f"acknowledged, {lost} crashes that lost sectors; {cluster.describe()}",
            )

    def begin_work(self, working: asyncio.TaskGroup, is_over: IsOver) -> None:
        """The clients', until it ``is_over``."""
        group, seed = self._cluster.founding, self._seed
        clients: list[ProducerClient | PlainClient | ContestClient | ReaderClient] = [
            *(ProducerClient(f"p{at}", group, Random(seed + 10 + at)) for at in range(3)),
            PlainClient("plain", group, Random(seed + 20)),
            ContestClient("contest", group, Random(seed + 30)),
            ReaderClient(group, Random(seed + 3)),
        ]
        for client in clients:
            working.create_task(client.run(is_over), name=type(client).__name__)
        for number in range(MANY if self._seed % MANY_EVERY == MANY_EVERY - 1 else 1):
            working.create_task(self._live_beside(number), name=f"beside {number}")

    async def _live_beside(self, number: int) -> None:
        """A group beside the founding one, and the next one when it was removed."""
        is_one_of_many = self._seed % MANY_EVERY == MANY_EVERY - 1
        while (group := await self._nemesis.directory.make(self._is_enough)) is not None:
            await self._work_in(group, self._seed + 100 * (number + 1), 0.25 if is_one_of_many else 1.0)

    async def _work_in(self, group: SimGroup, seed: int, pace: float) -> None:
        def is_over() -> bool:
            return group.is_removed or self._is_enough()

        clients: list[ProducerClient | PlainClient | ContestClient | ReaderClient | MachineClient]
        clients = [ReaderClient(group, Random(seed + 2), pace=pace / 2)]
        if group.truth is not None:
            clients += [MachineClient(f"m{at}", group, Random(seed + at), pace=pace) for at in range(2)]
        else:
            clients += [
                ProducerClient("p", group, Random(seed), pace=pace),
                PlainClient("plain", group, Random(seed + 1), pace=pace),
                ContestClient("contest", group, Random(seed + 4), pace=pace),
            ]
        async with asyncio.TaskGroup() as working:
            for client in clients:
                working.create_task(client.run(is_over), name=f"{group.name} {type(client).__name__}")

    async def _check_always(self) -> None:
        while True:
            self._cluster.check()
            self._end_failed()
            await asyncio.sleep(CHECK_S)

    def _end_failed(self) -> None:
        """A node that stopped on an error of its disk ends as a process would; the nemesis starts it again."""
        for host in self._cluster.hosts.values():
            failure = None if host.is_down else host.life.failure
            if failure is None:
                continue
            self._cluster.trace.hit(f"branch node stopped {failure.code.name}", host.id)
            if not may_end(host, host.life, failure.code):
                raise Violation("no node stops for itself", f"{host.id}: {failure}")
            host.crash(power=False)
        for host in self._cluster.hosts.values():
            for share in [] if host.is_down else list(host.life.groups.values()):
                self._end_stopped(share)

    def _end_stopped(self, share: GroupLife) -> None:
        """A group beside the founding one that stopped on an error of its disk: the node goes on with the others, until
        somebody sees it and starts it again."""
        failure, host = share.failure, share.seat.host
        if failure is None or share.was_seen_to:
            return
        share.was_seen_to = True
        life = host.life
        self._cluster.trace.hit(f"branch group stopped {failure.code.name}", share.seat.name)
        if not may_end(host, life, failure.code):
            raise Violation("no group stops for itself", f"{share.seat.name}: {failure}")

        def end() -> None:
            if host.present_life is life:
                host.crash(power=False)

        self._cluster.world.call_later(self._random.uniform(0, UNSEEN_S), end)

    # Liveness ----------------------------------------------------------------------------------------------------

    async def _progress(self) -> None:
        """A random majority that is connected commits, whatever became of the others."""
        chosen = self._nemesis.connected_majority()
        if not chosen:
            return
        await self._nemesis.leave_alone(chosen)
        names = [host.id for host in chosen]
        self._cluster.trace.hit("branch liveness of a majority", *names)
        for group in self._groups:
            if not await self.probe(group, PROGRESS_S):
                raise Violation(
                    "a majority makes progress",
                    f"{names} committed nothing in {group.name} for {PROGRESS_S:g} s: {self._cluster.describe()}",
                )

    async def probe(self, group: SimGroup, limit_s: float) -> bool:
        """Appends until something is acknowledged."""
        deadline_s = self._cluster.world.time() + limit_s
        probe: ProducerClient | MachineClient
        if group.truth is not None:
            probe = MachineClient(f"probe-{deadline_s:g}", group, Random(0))
        else:
            probe = ProducerClient(f"probe-{deadline_s:g}", group, Random(0))
        await probe.run(lambda: probe.acknowledged > 0 or self._cluster.world.time() > deadline_s)
        return probe.acknowledged > 0

    async def _rest(self) -> None:
        """With everything whole, a leader comes in every group, appends go on, all logs become level, and every member
        may lead."""
        deadline_s = self._cluster.world.time() + LIVENESS_S
        probed: set[str] = set()
        while not self._nemesis.directory.is_done or not all(
            self.is_at_rest() and group.name in probed and self._is_level(group) for group in self._groups
        ):
            if self._cluster.world.time() > deadline_s:
                raise Violation("liveness", f"no rest within {LIVENESS_S:g} s: {self._cluster.describe()}")
            await self._nemesis.mend()
            for group in self._groups:
                if group.name not in probed and await self.probe(group, 1.0):
                    probed.add(group.name)
            await asyncio.sleep(0.05)

    def _check_removed(self) -> None:
        """A removed group is nowhere, nor are its files."""
        for group in self._cluster.groups.values():
            for seat in group.seats if group.is_removed else []:
                left = seat.host.platter.paths(seat.directory)
                if not seat.is_down and (left or seat.life.present is not None):
                    raise Violation("a removed group stays removed", f"{seat.name} has {left}")

    @property
    def _groups(self) -> list[SimGroup]:
        return [group for group in self._cluster.groups.values() if not group.is_removed]

    def _members_of(self, group: SimGroup) -> list[Seat]:
        return [self._cluster.hosts[member.id].seat(group.name) for member in group.members()]

    def _is_level(self, group: SimGroup) -> bool:
        seats = self._members_of(group)
        if not seats or not all(seat.is_up for seat in seats) or self._nemesis.is_mending:
            return False
        points = {(seat.replica.log.last, seat.replica.core.commit_position) for seat in seats}
        leading = [seat for seat in seats if seat.leads and seat.replica.core.is_ready]
        if not machines.is_level(group, seats):
            return False
        if len(points) != 1 or len(leading) != 1 or any(seat.replica.core.vote_blockers for seat in seats):
            return False
        ((last, commit),) = points
        return last.position == commit

    @property
    def _acknowledged(self) -> int:
        """Appends, in all groups."""
        return sum(group.journal.appends for group in self._cluster.groups.values())

    def _account(self) -> None:
        outcome, cluster = self._outcome, self._cluster
        outcome.simulated_s = self._spent_s
        outcome.elections = cluster.watch.elections
        outcome.acknowledged = self._acknowledged
        reads = sum(group.journal.reads for group in cluster.groups.values())
        if reads < MIN_READS:
            raise Violation("a seed has its share", f"only {reads} reads were answered")

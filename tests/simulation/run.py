"""One seed: a safety phase full of trouble, then a liveness phase in which everything must come to rest."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from dledger.batch import records_of
from dledger.types import Position
from tests.simulation.clients import Journal, ProducerClient, ReaderClient
from tests.simulation.cluster import SimHost, SimulatedCluster
from tests.simulation.nemesis import Nemesis
from tests.simulation.trace import Trace
from tests.simulation.watch import Violation
from tests.support.virtual_time import run_virtual

SAFETY_S = 30.0
"""At least; it goes on until the seed has had its share of trouble, at most ``MAX_SAFETY_S``."""
MAX_SAFETY_S = 120.0
MIN_ELECTIONS = 3
MIN_ACKNOWLEDGED = 500
LIVENESS_S = 60.0
CHECK_S = 0.01

BRANCHES = {
    "cutting a tail that the leader does not have": "branch truncate",
    "this log ends before the leader's begins; it begins anew there": "branch reset",
    "trimming the log": "branch trim",
    "a member is not what it was; no quorum rests on it": "branch doubt",
    "a member is what it should be again": "branch doubt lifted",
    "handing the leadership to a preferred leader": "branch preferred leader",
    "a follower lost frames that it had acknowledged and that are committed": "branch follower lost frames",
    "caught up after an unclean stop; voting again": "branch caught up",
    "refused a push that does not fit": "branch push refused",
}
"""What the product logs when it takes a branch worth counting."""


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
    hits: Counter[str] = field(default_factory=Counter)


class _BranchCounter(logging.Handler):
    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        name = BRANCHES.get(record.msg)
        if name is not None:
            self._trace.hit(name)


def run_seed(seed: int, *, show: bool = False) -> Outcome:
    """Never raises: what went wrong is in the outcome."""
    trace = Trace(show=show)
    outcome = Outcome(seed)
    handler = _BranchCounter(trace)
    logger = logging.getLogger("dledger")
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = show
    try:
        run_virtual(_simulate(seed, trace, outcome), limit_s=MAX_SAFETY_S + LIVENESS_S + 600)
    except BaseException as failure:
        if isinstance(failure, KeyboardInterrupt):
            raise
        outcome.failure = "".join(traceback.format_exception(failure))
        outcome.invariant = _invariant_of(failure)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]
    outcome.digest = trace.digest
    outcome.hits = trace.hits
    return outcome


def _invariant_of(failure: BaseException) -> str:
    if isinstance(failure, BaseExceptionGroup):
        return _invariant_of(failure.exceptions[0])
    return failure.invariant if isinstance(failure, Violation) else type(failure).__name__


async def _simulate(seed: int, trace: Trace, outcome: Outcome) -> None:
    random = Random(seed)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    cluster = SimulatedCluster(random.choice((3, 5)), seed, trace)
    journal = Journal()
    nemesis = Nemesis(cluster, Random(seed + 2))
    await cluster.start()

    def is_enough() -> bool:
        spent_s = loop.time() - began_s
        lost = sum(host.sectors_lost for host in cluster.hosts.values())
        met = min(cluster.watch.elections / MIN_ELECTIONS, len(journal.acknowledged) / MIN_ACKNOWLEDGED, lost) >= 1
        return spent_s >= MAX_SAFETY_S or (spent_s >= SAFETY_S and met)

    producers = [ProducerClient(f"p{at}", cluster, journal, Random(seed + 10 + at)) for at in range(3)]
    async with asyncio.TaskGroup() as tasks:
        checking = tasks.create_task(_check_always(cluster), name="check")
        async with asyncio.TaskGroup() as working:
            for producer in producers:
                working.create_task(producer.run(is_enough), name="producer")
            working.create_task(ReaderClient(cluster, journal, Random(seed + 3)).run(is_enough), name="reader")
            working.create_task(nemesis.run(is_enough), name="nemesis")
        await nemesis.end()
        await _come_to_rest(cluster, nemesis, journal)
        checking.cancel()
    outcome.simulated_s = loop.time() - began_s
    outcome.elections = cluster.watch.elections
    outcome.acknowledged = len(journal.acknowledged)
    for member in cluster.leaders()[0].replica.log.state.members:
        await _check_log(cluster.hosts[member.id], journal)
    for host in cluster.up():
        host.crash()


async def _check_always(cluster: SimulatedCluster) -> None:
    while True:
        cluster.check()
        _revive_failed(cluster)
        await asyncio.sleep(CHECK_S)


def _revive_failed(cluster: SimulatedCluster) -> None:
    """A node that stopped on an error of its disk ends as a process would; the nemesis starts it again."""
    for host in cluster.up():
        failure = host.replica.failure
        if failure is not None:
            cluster.trace.hit("branch node stopped", host.id, failure.code.name)
            if failure.code.name in ("INTERNAL_ERROR", "DIVERGED", "CORRUPT_LOG"):
                raise Violation("no node stops for itself", f"{host.id}: {failure}")
            host.crash(power=False)


async def _come_to_rest(cluster: SimulatedCluster, nemesis: Nemesis, journal: Journal) -> None:
    """Liveness: with everything whole, a leader comes, appends go on, and all logs become level."""
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + LIVENESS_S
    probe = ProducerClient("probe", cluster, journal, Random(0))
    while not _is_level(cluster):
        if loop.time() > deadline_s:
            raise Violation("liveness", f"no rest within {LIVENESS_S:g} s: {cluster.describe()}")
        await nemesis.mend()
        if probe.acknowledged == 0 and cluster.leaders():
            soon_s = loop.time() + 0.05
            await probe.run(lambda soon_s=soon_s: loop.time() > soon_s)  # type: ignore[misc]
        await asyncio.sleep(0.05)


def _is_level(cluster: SimulatedCluster) -> bool:
    leaders = cluster.leaders()
    if not leaders:
        return False
    hosts = [cluster.hosts[member.id] for member in leaders[0].replica.log.state.members]
    if not all(host.is_up for host in hosts):
        return False
    points = {(host.replica.log.last, host.replica.core.commit_position) for host in hosts}
    leading = [host for host in hosts if host.leads and host.replica.core.is_ready]
    (last, commit) = next(iter(points)) if len(points) == 1 else (None, None)
    return len(leading) == 1 and last is not None and last.position == commit


async def _check_log(host: SimHost, journal: Journal) -> None:
    log = host.replica.log
    committed: list[bytes] = []
    position = Position(log.state.start.position + 1)
    while position <= host.replica.core.commit_position:
        frames = await log.read(position, 1 << 20)
        for frame in frames:
            if frame.header.count:
                committed += records_of(frame.body, frame.header.count)
        position = Position(frames[-1].header.position + 1)
    journal.check(committed, log.state.first_index, who=host.id)

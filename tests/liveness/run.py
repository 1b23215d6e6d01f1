"""One case: a running cluster with a chosen leader, a graph put in force, and whether a leader comes to stay."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import NamedTuple

from dledger.common.config import Timings
from dledger.common.errors import DLedgerError
from dledger.common.types import Role, Term
from dledger.group.leader.quorum_ack_checker import AppendResult
from tests.liveness.graphs import Graph, Shape
from tests.support.cluster import SimCluster, SimNode
from tests.support.virtual_time import run_virtual

TIMINGS = Timings()
TIMEOUT_S = TIMINGS.election_timeout_max_ms / 1000
"""One election timeout: the longest wait that a node draws."""
GRANTED = 10
"""So many election timeouts may pass until a leader leads that stays."""
STABLE = 5
"""It stays when for so many there is no other leader, and no other term at any node that it can talk with."""
POLL_S = 0.02


class Kind(Enum):
    """How the graph comes into force."""

    LEVEL = "level"
    """All logs are equal; the missing links lose what is sent, and look connected."""
    CLOSED = "closed"
    """As level, and the connections of the missing links are closed, which both ends see."""
    BUSY = "busy"
    """Appends are under way, and no two nodes need have got the same of them."""
    BEHIND = "behind"
    """A minority was away while records were committed, and has none of them."""
    LEASES = "leases"
    """As level, with reads by lease."""


class Case(NamedTuple):
    shape: Shape
    number: int
    """The graph's."""
    leader: int
    """Who leads when the graph comes into force."""
    kind: Kind

    @property
    def seed(self) -> int:
        return (self.number * 8 + self.leader) * 8 + list(Kind).index(self.kind)

    def __str__(self) -> str:
        shape = f"{self.shape.size} nodes, {'directed' if self.shape.is_directed else 'undirected'}"
        return f"{shape}, graph {self.number}, n{self.leader} led, {self.kind.value}"


class Outcome(NamedTuple):
    is_eligible: bool
    """Some node has links both ways to a quorum."""
    is_up_to_date: bool
    """One of those has a log that its quorum would vote for as it is."""
    led_s: float | None
    """When the leader that stayed had committed its first record since; None: nobody did in time."""
    failure: str = ""
    """What broke that must never break."""

    @property
    def is_failed(self) -> bool:
        return bool(self.failure) or (self.is_eligible and self.led_s is None)


def run_case(case: Case) -> Outcome:
    try:
        return run_virtual(_run(case))
    except Exception as failure:  # noqa: BLE001 – whatever it is, it is this case's outcome
        return Outcome(is_eligible=True, is_up_to_date=True, led_s=None, failure=f"{type(failure).__name__}: {failure}")


async def _run(case: Case) -> Outcome:
    graph = case.shape.graph(case.number)
    leases = case.kind is Kind.LEASES
    async with SimCluster(case.shape.size, seed=case.seed, timings=TIMINGS, lease_reads=leases) as cluster:
        await _elect(cluster, case.leader)
        await _prepare(cluster, case)
        put_in_force(cluster, graph, closes=case.kind is Kind.CLOSED)
        ends = [cluster[at].log.last[:2] for at in range(case.shape.size)]
        up_to_date = graph.can_elect([(term, position) for position, term in ends])
        led_s = await stable_leader(cluster, graph) if graph.hubs else None
        return Outcome(bool(graph.hubs), up_to_date, led_s)


async def _elect(cluster: SimCluster, chosen: int) -> None:
    leader = await cluster.leader()
    if leader is not cluster[chosen]:
        await leader.replica.handover.transfer(cluster[chosen].id)
    await (await cluster.leader()).append(b"first")
    await cluster.level()


async def _prepare(cluster: SimCluster, case: Case) -> None:
    leader = cluster[case.leader]
    followers = cluster.others(leader)
    if case.kind is Kind.BUSY:
        cluster.network.jitter_s = 0.01
        for at in range(20):
            _forget(leader.submit(b"busy %d" % at))
            await asyncio.sleep(0.001)
    elif case.kind is Kind.BEHIND:
        away = cluster.random.sample(followers, cluster.random.randint(1, (case.shape.size - 1) // 2))
        cluster.faults.partition([node.id for node in away], [node.id for node in cluster.up() if node not in away])
        for at in range(3):
            await leader.append(b"behind %d" % at)
        cluster.faults.heal()
        # The leader sends again what was lost a second later: the graph is there first.


def _forget(future: asyncio.Future[AppendResult]) -> None:
    future.add_done_callback(lambda done: done.cancelled() or done.exception())


def put_in_force(cluster: SimCluster, graph: Graph, *, closes: bool = False) -> None:
    cluster.faults.heal()
    for source, target in graph.missing:
        cluster.faults.cut(cluster[source].id, cluster[target].id)
    if closes:
        for source, target in graph.missing:
            cluster.network.disconnect(cluster[source].id, cluster[target].id)


class _Reign(NamedTuple):
    """A leader that has committed a record of its own, and the terms around it."""

    leader: SimNode
    terms: tuple[Term, ...]
    since_s: float


async def stable_leader(cluster: SimCluster, graph: Graph) -> float | None:
    """How long it took until a leader committed something, and then stayed; None: longer than is granted."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    while loop.time() < begun_s + GRANTED * TIMEOUT_S:
        leader = _newest_leader(cluster)
        if leader is None or not await _commits(leader):
            await asyncio.sleep(POLL_S)
            continue
        reign = _Reign(leader, _terms_around(cluster, graph, leader), loop.time() - begun_s)
        if reign.since_s <= GRANTED * TIMEOUT_S and await _stays(cluster, graph, reign):
            return reign.since_s
    return None


def _newest_leader(cluster: SimCluster) -> SimNode | None:
    leading = [node for node in cluster.up() if node.leads]
    return max(leading, key=lambda node: node.replica.term, default=None)


def _terms_around(cluster: SimCluster, graph: Graph, leader: SimNode) -> tuple[Term, ...]:
    at = list(cluster.nodes).index(leader.id)
    return tuple(cluster[each].replica.core.term for each in (at, *graph.neighbours(at)))


async def _commits(leader: SimNode) -> bool:
    try:
        async with asyncio.timeout(TIMEOUT_S / 2):
            await leader.append(b"probe")
    except (DLedgerError, TimeoutError):
        return False
    return leader.leads


async def _stays(cluster: SimCluster, graph: Graph, reign: _Reign) -> bool:
    """No other leader or term, and every append is committed."""
    for _ in range(2 * STABLE):
        await asyncio.sleep(TIMEOUT_S / 2)
        if reign.leader.replica.role is not Role.LEADER or _newest_leader(cluster) is not reign.leader:
            return False
        if _terms_around(cluster, graph, reign.leader) != reign.terms or not await _commits(reign.leader):
            return False
    return True

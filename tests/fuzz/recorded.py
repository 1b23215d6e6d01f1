"""Good messages to begin with: what the nodes of a cluster in memory really said to each other, of every kind."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from dledger.common.types import NodeId
from dledger.raft import codec
from dledger.raft.messages import Heartbeat, HeartbeatBatch, HeartbeatResponse, HeartbeatResponseBatch, PeerMessage
from tests.support.cluster import SimCluster, SimNode
from tests.support.virtual_time import run_virtual

KEPT_OF_EACH = 40


class Recorded(NamedTuple):
    """One message as it was on the wire, without its framing."""

    source: NodeId
    header: bytes
    body: bytes


def record() -> dict[str, list[Recorded]]:
    """By the name of the kind; each has some."""
    found: dict[str, list[Recorded]] = defaultdict(list)
    for scene in (_replaced_leader, _trimmed_log, _short_log):
        run_virtual(_play(scene, found))
    for kind in ("Heartbeat", "HeartbeatResponse"):
        found[f"{kind}Batch"] = [_batch(found[kind][at : at + 3]) for at in range(0, 9, 3)]
    return dict(found)


def _batch(recorded: list[Recorded]) -> Recorded:
    """As a node that has several groups would have sent them."""
    source = recorded[0].source
    rows = [codec.decode(each.header, b"", cluster_id="c", sender=each.source) for each in recorded]
    heartbeats = tuple(row for row in rows if isinstance(row, Heartbeat))
    answers = tuple(row for row in rows if isinstance(row, HeartbeatResponse))
    batch = HeartbeatBatch(heartbeats) if heartbeats else HeartbeatResponseBatch(answers)
    return Recorded(source, codec.encode(batch, cluster_id="c", sender=source).header, b"")


async def _play(scene: Callable[[SimCluster], object], found: dict[str, list[Recorded]]) -> None:
    async with SimCluster(3, seed=0, segment_frames=10) as cluster:
        send = cluster.network.send

        def overheard(source: NodeId, target: NodeId, message: PeerMessage) -> bool:
            kept = found[type(message).__name__]
            if len(kept) < KEPT_OF_EACH:
                encoded = codec.encode(message, cluster_id="c", sender=source)
                kept.append(Recorded(source, encoded.header, b"".join(encoded.body)))
            return send(source, target, message)

        cluster.network.send = overheard  # type: ignore[method-assign]
        await scene(cluster)  # type: ignore[misc]


async def _replaced_leader(cluster: SimCluster) -> None:
    """Votes, a handover, and a tail that the next leader cuts."""
    leader = await cluster.leader()
    await _fill(leader, 10)
    await leader.replica.handover.transfer(cluster.others(leader)[0].id)
    old = await cluster.leader()
    cluster.faults.partition([old.id], [node.id for node in cluster.others(old)])
    lost = old.submit(b"nobody else has it")
    lost.add_done_callback(lambda done: done.cancelled() or done.exception())
    await cluster.until(lambda: any(node.leads for node in cluster.others(old)))
    cluster.network.heal()
    await cluster.level(within_s=10)


async def _trimmed_log(cluster: SimCluster) -> None:
    """A follower that ends before the leader's log begins."""
    leader = await cluster.leader()
    away = cluster.others(leader)[0]
    away.crash()
    await leader.replica.appender.new_producer()
    await _fill(leader, 40)
    await leader.replica.retention.trim(30)
    await away.start()
    await cluster.level()


async def _short_log(cluster: SimCluster) -> None:
    """A candidate that lacks what the only other voter has, which does not stand."""
    leader = await cluster.leader()
    ahead, behind = cluster.others(leader)
    await cluster.level()
    cluster.faults.partition([behind.id], [leader.id, ahead.id])
    await _fill(leader, 10)
    leader.crash()
    cluster.network.heal()
    ahead.replica.core.set_may_lead(False, ahead.replica.now_ms())
    await cluster.until(lambda: behind.leads)


async def _fill(leader: SimNode, count: int) -> None:
    for at in range(count):
        await leader.append(b"record %d" % at, b"", bytes(at))

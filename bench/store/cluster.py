"""Three nodes of ours as the scenarios have them, and what is asked of their store."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.processes import Child, peak_bytes, resident_bytes, wait_for
from bench.scenarios.cluster import Cluster, cluster
from bench.store.checkpoints import Checkpoints
from bench.store.node_api import NodeApi
from bench.work import MeasurementFailed
from dledger.client import BlockingCluster, connect_cluster_blocking
from dledger.common.types import META_GROUP

LONGEST_S = 600.0
Tell = Callable[[str], None]
NODES = 3


class StoreCluster:
    def __init__(self, nodes: Cluster, client: BlockingCluster) -> None:
        self.nodes = nodes
        self.client = client
        self.store = client.store()
        self._meta = client.log(META_GROUP)
        self.apis = [NodeApi(int(each.rpartition(":")[2])) for each in nodes.endpoints.split(",")]
        self.checkpoints = Checkpoints([child.log for child in nodes.nodes])
        self.leader()

    @property
    def numbers(self) -> range:
        return range(len(self.apis))

    def leader(self) -> int:
        """The number of the node that leads, as soon as one does."""
        return wait_for(self._leader, "the store has a leader", timeout_s=LONGEST_S)

    def _leader(self) -> int | None:
        return next((number for number in self.numbers if self.apis[number].leads()), None)

    def follower(self) -> int:
        """One that does not lead."""
        return (self.leader() + 1) % len(self.apis)

    def term(self) -> int:
        """The leader's: where it has risen there was an election."""
        status = self.apis[self.leader()].status()
        if status is None:
            raise MeasurementFailed("the leader does not tell its status")
        return int(status.raftTerm)

    def state_bytes(self) -> int:
        """What the store says that it takes, with its history."""
        return self.store.status().size_bytes

    def log_bytes(self, number: int) -> int:
        """Of the group's log on the node, without the room that is made ready for what comes."""
        return sum(each.size_bytes for each in self._meta.segments(node=f"n{number}"))

    def first_index(self, number: int) -> int:
        """Of the group's log on the node: it rises when what lies before a checkpoint goes."""
        return min(each.base_index for each in self._meta.segments(node=f"n{number}"))

    def memory_mb(self) -> dict[str, list[float]]:
        """Of each node: what it has now, and the most that it ever had."""
        pids = [child.pid for child in self.nodes.nodes]
        now, most = ([round(of(pid) / 1e6, 1) for pid in pids] for of in (resident_bytes, peak_bytes))
        return {"now_mb": now, "most_mb": most}

    def resident_mb(self, number: int) -> float:
        return resident_bytes(self.nodes.nodes[number].pid) / 1e6

    def applied_index(self, number: int) -> int:
        """What the node has applied; −1: it does not answer."""
        status = self.apis[number].status()
        return -1 if status is None else int(status.raftAppliedIndex)

    def restart(self, number: int) -> dict[str, float]:
        """Ends the node cleanly, and starts it: seconds until it serves, and until all that was committed before is
        applied there."""
        wanted = max(self.applied_index(each) for each in self.numbers)
        self.nodes.end(number)
        began = time.perf_counter()
        serves_s = self.nodes.start(number)
        self.wait_applied(number, wanted)
        return {"serves_s": round(serves_s, 2), "applied_s": round(time.perf_counter() - began, 2)}

    def wait_applied(self, number: int, index: int) -> None:
        """Raises MeasurementFailed, also where the node has ended."""
        child = self.nodes.nodes[number]
        wait_for(
            lambda: True if self.applied_index(number) >= index else None,
            f"n{number} has applied all up to {index}",
            children=[child],
            timeout_s=LONGEST_S,
        )

    def work(self, name: str, *arguments: object) -> Child:
        """Starts one work of client.py, which is spoken to by its stdin and stdout."""
        command = [sys.executable, "-m", "bench.store.client", name, self.nodes.endpoints, *map(str, arguments)]
        return Child(command, self.nodes.data_folder().parent / f"{name}.log", talks=True)

    def close(self) -> None:
        for api in self.apis:
            api.close()


@contextmanager
def store_cluster(needed_gb: float) -> Iterator[StoreCluster]:
    """Ready; gone, with its data, behind the block."""
    with cluster(NODES, needed_gb=needed_gb) as nodes, connect_cluster_blocking(nodes.endpoints) as client:
        running = StoreCluster(nodes, client)
        try:
            yield running
        finally:
            running.close()

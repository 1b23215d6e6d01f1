"""Real nodes for tests without an event loop, and what is asked of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from dledger.cli.cluster import LocalCluster
from dledger.client import BlockingLog, connect_blocking
from dledger.common.types import DEFAULT_GROUP

Result = TypeVar("Result")


class Cluster:
    """A ``LocalCluster`` that runs in a thread of its own."""

    def __init__(self, data: Path, nodes: int, serve_flags: tuple[str, ...] = ()) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cluster", daemon=True)
        self._thread.start()
        self.nodes = LocalCluster(data, nodes=nodes, serve_flags=serve_flags)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def start(self) -> None:
        self.run(self.nodes.start())
        self.run(self.nodes.wait_ready())

    def stop(self) -> None:
        self.nodes.kill_all()
        self.run(self.nodes.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def endpoints(self) -> str:
        return self.nodes.endpoints

    def data_dir(self, node_id: str) -> Path:
        return self.nodes.nodes[node_id].data_dir

    @contextmanager
    def log(self) -> Iterator[BlockingLog]:
        with connect_blocking(self.endpoints) as log:
            yield log

    def append(self, records: list[bytes], batch: int = 1_000) -> None:
        with self.log() as log:
            for start in range(0, len(records), batch):
                log.append_many(records[start : start + batch])

    def records(self, start: int = 0) -> list[bytes]:
        """Everything committed, as the leader has it."""
        with self.log() as log:
            return [record for batch in log.read_batches(start) for record in batch.records()]


@contextmanager
def running(data: Path, *, nodes: int = 1, serve_flags: tuple[str, ...] = ()) -> Iterator[Cluster]:
    """Nodes on free ports, of which one leads."""
    cluster = Cluster(data, nodes, serve_flags)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def first_segment(data_dir: Path) -> Path:
    """The segment with the first records of the group `default`. A later one may be room that was laid out ahead: what
    changes there need not be a record's."""
    return min((data_dir / "groups" / DEFAULT_GROUP).glob("*.log"))

"""Nodes with the store's services in this process, and a run of the workloads' clients at them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

from dledger.rpc.server.server import GrpcServer
from dledger.server.etcd.services import add_etcd_services
from jepsen.judging import judge
from jepsen.plan import Plan
from jepsen.store.load import StoreLoad
from tests.support.local_store import LocalBackend

MAX_MESSAGE_BYTES = 16 << 20


@asynccontextmanager
async def serving(backend: LocalBackend) -> AsyncIterator[str]:
    """The address of a node with this backend."""
    server = GrpcServer(max_message_bytes=MAX_MESSAGE_BYTES)
    add_etcd_services(backend, Random(1), server)
    backend.address = f"127.0.0.1:{await server.bind('127.0.0.1', 0)}"
    await server.start()
    try:
        yield backend.address
    finally:
        await server.stop(0)
        backend.close()


class LaggingBackend(LocalBackend):
    """Submits to another one, and applies what that applied only so many commands later: its reads wait for nothing."""

    def __init__(self, first: LocalBackend, lag: int) -> None:
        super().__init__()
        self.member_id = 0xA2
        self._first = first
        self._lag = lag
        self._commands: list[bytes] = []
        self._tell, first._apply = first._apply, self._hear  # type: ignore[method-assign]

    def _hear(self, command: bytes) -> Any:
        self._commands.append(command)
        self.catch_up(self._lag)
        return self._tell(command)

    def catch_up(self, lag: int = 0) -> None:
        while len(self._commands) > lag:
            self._apply(self._commands.pop(0))

    async def submit(self, command: bytes) -> Any:
        return await self._first.submit(command)


async def run_at(
    nodes: Mapping[str, str], run_dir: Path, plan: Plan, *, before_the_end: Any = lambda: None
) -> dict[str, Any]:
    """The verdict of a run without faults."""
    load = StoreLoad(plan, Random(plan.seed))
    (run_dir / "plan.json").write_text(json.dumps(asdict(plan)))
    with load.recording(run_dir) as journal:
        async with AsyncExitStack() as stack:
            workers = load.workers_at(nodes, stack)
            journal.begin()
            ended = asyncio.Event()
            asyncio.get_running_loop().call_later(plan.time_limit_s, ended.set)
            await asyncio.gather(*(worker.run(ended) for worker in workers))
        before_the_end()
        await load.read_copies(nodes)
    return judge(run_dir)


def plan_of(workload: str, *, seconds: float = 1.0, nodes: int = 1, clients: int = 4, seed: int = 1) -> Plan:
    return Plan(workload, ("none",), clients, seconds, 1, 1, nodes=nodes, call_timeout_ms=2_000, seed=seed, settle_s=10)

"""The load of a log: appenders, readers and getters, and reads of every copy at the end."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from dledger.client import Log, connect
from dledger.common.errors import DLedgerError
from dledger.common.types import DEFAULT_GROUP, Consistency
from dledger.kernels.history import FINAL
from jepsen import history
from jepsen.clients import Client, PlainClient, SdkClient
from jepsen.load import Worker
from jepsen.nemesis.api import World
from jepsen.recorder import ReadRows, Recorder
from jepsen.workers import Appender, Getter, Reader, fill
from jepsen.workloads import APPENDERS, FINAL_READER, GETTERS, LOCAL_READERS, READERS, WORKLOADS

if TYPE_CHECKING:
    from jepsen.plan import Plan

logger = logging.getLogger(__name__)


class LogLoad:
    group = DEFAULT_GROUP

    def __init__(self, plan: Plan, chance: random.Random) -> None:
        self._plan = plan
        self._chance = chance
        self._workload = WORKLOADS[plan.workload]

    def recording(self, run_dir: Path) -> Recorder:
        self._recorder = Recorder(run_dir)
        return self._recorder

    def keep(self, run_dir: Path) -> None:
        history.to_parquet(run_dir)

    async def workers(self, world: World, stack: AsyncExitStack) -> Sequence[Worker]:
        plan, workload, recorder, endpoints = self._plan, self._workload, self._recorder, world.hosts.endpoints
        workers: list[Worker] = []
        for process in APPENDERS[: plan.clients]:
            client = await self._client(endpoints)
            stack.push_async_callback(client.close)
            rate = plan.rate_per_s / plan.clients
            workers.append(
                Appender(process, client, recorder, batch=plan.batch, record_bytes=plan.record_bytes, rate_per_s=rate)
            )
        if workload.readers or workload.getters or workload.local_readers:
            log = await stack.enter_async_context(connect(endpoints, timeout_ms=plan.call_timeout_ms))
            size = plan.record_bytes
            workers += [Reader(process, log, recorder, size) for process in READERS[: workload.readers]]
            for process in GETTERS[: workload.getters]:
                own = await stack.enter_async_context(connect(endpoints, timeout_ms=plan.call_timeout_ms))
                workers.append(Getter(process, own, recorder, size))
            places = [host.name for host in world.hosts.all] * workload.local_readers
            workers += [
                Reader(process, log, recorder, size, node)
                for process, node in zip(LOCAL_READERS[: len(places)], places, strict=True)
            ]
        return workers

    async def _client(self, endpoints: str) -> Client:
        if self._plan.client == "sdk":
            return await SdkClient(endpoints, self._plan.call_timeout_ms).open()
        return PlainClient(endpoints, self._plan.call_timeout_ms, self._chance)

    async def final_reads(self, world: World) -> None:
        """The whole log: of the leader, linearizably, then every member's own copy."""
        async with connect(world.hosts.endpoints, timeout_ms=self._plan.call_timeout_ms) as log:
            await self._final_reads(log, world)

    async def _final_reads(self, log: Log, world: World) -> None:
        recorder, plan = self._recorder, self._plan
        _, commit_index = await log.bounds(timeout_ms=plan.settle_s * 1000)
        members = {node.id for node in (await log.status()).nodes}
        copies = [host.name for host in world.hosts.all if host.name in members]
        told = {"copies": copies, "unrecovered": world.unrecovered}
        (world.run_dir / "end.json").write_text(json.dumps(told), encoding="utf-8")
        places: list[str | None] = [None, *copies]
        for number, node in enumerate(places):
            rows = ReadRows(FINAL_READER + number, 0, FINAL, node=node or "", start=0, invoked_ns=recorder.now_ns())
            consistency = Consistency.COMMITTED if node else Consistency.LINEARIZABLE
            end = commit_index + 1 if node else None
            batches = log.read_batches(0, end, consistency=consistency, node=node, timeout_ms=plan.settle_s * 1000)
            try:
                await fill(rows, batches, plan.record_bytes)
            except DLedgerError as failure:
                if rows:
                    recorder.found(rows.broken_off())
                if node is None:
                    raise
                logger.warning("%s could not be read at the end: %s", node, failure)
                continue
            recorder.found(rows)
            logger.info("%s holds %d records", node or "the leader", rows.end)

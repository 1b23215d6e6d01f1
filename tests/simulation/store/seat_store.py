"""What one life of a node runs of the store: the store itself, and etcd's services in front of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn

from dledger.group.replica import Replica
from dledger.node.node import Node
from dledger.server.etcd.kv_service import KVService
from dledger.server.etcd.lease_service import LeaseService
from dledger.server.etcd.maintenance_service import MaintenanceService
from dledger.server.etcd.watch_service import WatchService
from dledger.server.meta.group_records import GROUPS_PREFIX, entry_of
from dledger.server.meta.meta_backend import MetaBackend
from dledger.server.meta.meta_store import MetaStore
from dledger.statemachine.keeper import KeeperOptions
from dledger.statemachine.local_log import LocalLog
from dledger.statemachine.machine_log import LogRecord
from dledger.statemachine.runner import Runner
from dledger.store.keys import KeyRange, prefix_end
from dledger.store.machine import Store
from tests.simulation.store.store_truth import StoreTruth
from tests.simulation.store.way import WayToLeader
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.life import GroupLife

OPTIONS = KeeperOptions(
    checkpoint_after_bytes=2_500, checkpoint_bytes_per_s=8_000, look_interval_s=0.1, session_idle_s=20.0
)
"""Checkpoints come often, so that nodes that were away are reset past one."""
SLOWNESSES_S = 0.0, 0.0, 0.0, 0.003, 0.015
"""A record takes a node so long."""
PROGRESS_INTERVAL_S = 1.5
"""Of watches without an event."""


class Through:
    """A call's context: the services' refusals come through as they are."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    async def abort(self, _status: object, _text: str) -> NoReturn:
        raise  # noqa: PLE0704 – the service is about to answer with what it refuses


THROUGH: Any = Through()


class LaggingLog(LocalLog):
    """Read late, at times. ``slow_s``: every record takes so long."""

    def __init__(self, replica: Callable[[], Replica], slow_s: float) -> None:
        super().__init__(replica)
        self._slow_s = slow_s
        self.lags_until_s = 0.0

    async def read(self, start: int) -> AsyncIterator[Sequence[LogRecord]]:
        async for records in super().read(start):
            left_s = self.lags_until_s - asyncio.get_running_loop().time()
            if self._slow_s or left_s > 0:
                await asyncio.sleep(max(self._slow_s * len(records), left_s))
            yield records


class SeatStore:
    def __init__(self, share: GroupLife, node: Node, random: Random) -> None:
        self._share = share
        group = share.seat.group
        self.meta = MetaStore(
            node,
            random,
            lambda replica: WayToLeader(share, replica, random),
            group=group.name,
            checkpoints=OPTIONS,
        )
        self._log = self.meta.runner._log = LaggingLog(self.meta.replica, random.choice(SLOWNESSES_S))
        self.backend = MetaBackend(node, self.meta)
        self.kv = KVService(self.backend)
        self.maintenance = MaintenanceService(self.backend)
        self.leases = LeaseService(self.backend)
        self.watches = WatchService(self.backend, random, progress_interval_s=PROGRESS_INTERVAL_S)
        self.is_open = False
        """Its port takes calls."""
        self.least_revision = 0
        """What this life told its clients, and what was committed before it began: it serves nothing older."""
        self._table_of = 0
        """The revision that the directory was checked at."""
        self._rebuilds = 0
        """That somebody asked for."""
        applied, self.meta.runner.on_applied = self.meta.runner.on_applied, self._on_applied
        self._applied = applied

    def start(self) -> None:
        self.meta.start()
        self.is_open = True
        self.least_revision = self.truth.revision

    async def close(self) -> None:
        self.is_open = False
        await self.meta.stop()

    def tell(self, revision: int, least: int) -> None:
        """It is about to be told to a client, who asked when ``least`` was the least."""
        if revision < least:
            name = self._share.seat.name
            raise Violation("a node serves nothing older", f"{name} tells of revision {revision}, and told of {least}")
        self.least_revision = max(self.least_revision, revision)

    @property
    def truth(self) -> StoreTruth:
        truth = self._share.seat.group.truth
        assert isinstance(truth, StoreTruth)
        return truth

    @property
    def runner(self) -> Runner[Store]:
        return self.meta.runner

    is_damaged = False

    def flip(self, _random: Random) -> bool:
        """The node takes its state for one that differs."""
        if self.runner.next_index is None:
            return False
        self._rebuilds += 1
        self.runner.rebuild()
        return True

    def lag(self, for_s: float) -> None:
        """Nothing is applied here meanwhile."""
        self._log.lags_until_s = self._share.process.time() + for_s

    def stop(self) -> None:
        """The founding group is never removed."""

    def _check_table(self) -> None:
        """The directory of groups is what its records say, as of what is served."""
        table, revision = self.meta.table, self.meta.watches.revision
        if not self.meta.is_there or revision == self._table_of:
            return
        self._table_of = revision
        of = KeyRange(GROUPS_PREFIX, prefix_end(GROUPS_PREFIX))
        expected = {entry.name: entry for entry in map(entry_of, self.truth.history.pairs(of, revision))}
        if table.groups != expected:
            name = self._share.seat.name
            raise Violation("the directory is its records", f"{name}: {table.groups}, and should be {expected}")

    def _on_applied(self) -> None:
        self._applied()
        seat = self._share.seat
        try:
            self.truth.check_state(self._share)
            self._check_table()
            if self.runner.rebuilds > self._rebuilds:
                raise Violation("a state that is right is not built anew", seat.name)
        except Violation as violation:
            seat.cluster.world.fail(violation)

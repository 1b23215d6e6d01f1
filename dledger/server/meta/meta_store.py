"""The store on this node: its state machine, its watches, and the tasks that keep them going.

::

    gRPC, directory ─▶ MetaLog ─▶ the leader's log ─▶ Runner ─▶ Store ─▶ WatchHub ─▶ watches
                                                                  └────▶ GroupTable ─▶ the directory of groups
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import META_GROUP
from dledger.group.failing import as_refusal
from dledger.group.replica import Replica
from dledger.metrics.store import StoreFigures
from dledger.node.node import Node
from dledger.server.meta.at_leader import AtLeader, ThisNode
from dledger.server.meta.compactor import Compactor
from dledger.server.meta.group_table import GroupTable
from dledger.server.meta.lease_keeper import LeaseKeeper
from dledger.server.meta.meta_leader import MetaLeader
from dledger.server.meta.meta_log import WAIT_S, MetaLog
from dledger.statemachine.keeper import Keeper, KeeperOptions
from dledger.statemachine.local_log import LocalLog
from dledger.statemachine.runner import Runner
from dledger.store.machine import Store
from dledger.store.watch import WatchHub

logger = logging.getLogger(__name__)

MACHINE_NAME = "store"
RETRY_S = 0.1
"""Until the leader is asked again what is committed."""


class MetaStore:
    """Of one node. Its tasks run from ``start``, once the node has joined the others, to ``stop``.

    It serves nothing before its state ``is_there``: after a start, not before the state has what was committed then.
    After the state was built anew, not before it is as far as it was.
    """

    def __init__(
        self,
        node: Node,
        random: Random,
        there: Callable[[Callable[[], Replica]], AtLeader],
        *,
        group: str = META_GROUP,
        checkpoints: KeeperOptions | None = None,
    ) -> None:
        """``there`` makes the way to another node that leads; it is given this node's replica of the ``group``."""
        self._node = node
        self._group = group
        self.leader = MetaLeader(node, group)
        self.table = GroupTable()
        self.on_groups: Callable[[], None] = lambda: None
        """Told when the groups may be others, and as ``tell_when_current`` says."""
        self._is_current_awaited = False
        self.here = ThisNode(self.replica)
        self.log = MetaLog(self.here, there(self.replica), self.leader, random)
        self.runner = Runner(
            LocalLog(self.replica), Store, random=random, name=MACHINE_NAME, is_on_a_node=True, leader=self.log
        )
        self.runner.on_applied = self._on_applied
        self.watches = WatchHub(self.runner.machine.pairs)
        self.here.leases = self._leases = LeaseKeeper(self.runner, self.replica)
        self._keeper = Keeper(self.runner, MACHINE_NAME, self.replica, checkpoints)
        self._compactor = Compactor(self.runner, self.replica, node.config.timings.store_history_s)
        self._least_index: int | None = None
        """As far as the state was once, or as what was committed at the start; None: that is not known yet."""
        self._there = asyncio.Event()
        """Set when the state ``is_there``, and left so."""
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        works: tuple[tuple[str, Callable[[], Coroutine[Any, Any, None]]], ...] = (
            ("store", self.runner.run),
            ("store-start", self._learn_least),
            ("store-checkpoints", self._keeper.run),
            ("store-leases", self._leases.run),
            ("store-compaction", self._compactor.run),
            ("store-cleaning", self._compactor.run_cleaning),
        )
        for name, work in works:
            task = asyncio.get_running_loop().create_task(work(), name=name)
            task.add_done_callback(self._on_ended)
            self._tasks.append(task)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.log.close()

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._node.on_failure(self._group, as_refusal(failure, self._group))

    def replica(self) -> Replica:
        """Of the store's group. Raises LEADER_NOT_READY while its log is being repaired here."""
        if self._group in self._node.groups.recovering:
            raise error(Code.LEADER_NOT_READY, f"the log of {self._group!r} is being repaired on this node")
        return self._node.replica(self._group)

    # What is served ----------------------------------------------------------------------------------------------

    @property
    def store(self) -> Store:
        """As of what is applied here. Raises LEADER_NOT_READY unless it ``is_there``."""
        self._check_there()
        return self.runner.machine

    @property
    def served_watches(self) -> WatchHub:
        """Raises LEADER_NOT_READY unless the state ``is_there``."""
        self._check_there()
        return self.watches

    @property
    def is_there(self) -> bool:
        """Whether the state may be served."""
        is_known = self.runner.next_index is not None and self._least_index is not None
        return is_known and self.runner.applied_index >= (self._least_index or 0)

    def _check_there(self) -> None:
        if not self.is_there:
            raise error(Code.LEADER_NOT_READY, "this node is still reading what the store has; try again in a moment")

    async def until_there(self) -> None:
        """Raises LEADER_NOT_READY if the state is not there after ``WAIT_S``."""
        try:
            async with asyncio.timeout(WAIT_S):
                while not self.is_there:
                    self._there.clear()
                    await self._there.wait()
        except TimeoutError:
            self._check_there()

    async def _learn_least(self) -> None:
        """Asks the leader until it answers."""
        while self._least_index is None:
            try:
                self._least_index = await self.log.commit_index()
            except DLedgerError as refusal:
                logger.debug("the store is not served yet", extra={"why": refusal})
                await asyncio.sleep(RETRY_S)
        self._on_applied()

    @property
    def is_current(self) -> bool:
        """Whether all that this node knows to be committed is applied here."""
        commit_index = self.replica().reader.commit_index
        return self.runner.next_index is not None and self.runner.applied_index >= commit_index

    def figures(self) -> StoreFigures:
        """For metrics: also asked from another thread."""
        store = self.runner.machine
        return StoreFigures(
            revision=store.pairs.revision,
            compact_revision=max(0, store.pairs.compact_revision),
            keys=len(store.pairs),
            size_bytes=store.pairs.size_bytes,
            quota_bytes=self._node.config.limits.store_quota_bytes,
            leases=len(store.leases),
            watches=self.watches.count(),
            applied_index=self.runner.applied_index,
            rebuilds=self.runner.rebuilds,
        )

    async def local_barrier(self) -> None:
        """As ``Runner.barrier``, on the leader alone: raises NOT_LEADER elsewhere, and LEADER_NOT_READY."""
        await self.runner.wait_applied(await self.here.read_index())

    def tell_when_current(self) -> None:
        """``on_groups`` is called once ``is_current``, which it is not."""
        self._is_current_awaited = True

    def _on_applied(self) -> None:
        if self.runner.next_index is None:
            return  # the state is being restored
        pairs = self.runner.machine.pairs
        if self.is_there:  # until then watches are told of the state before
            self._least_index = self.runner.applied_index
            self._there.set()
            self.watches.take_in(pairs)
        # The directory does not wait for a leader's word: its readers ask for a barrier, or whether it is current.
        is_awaited = self._is_current_awaited and self.is_current
        if self.table.take_in(pairs) or is_awaited:
            self._is_current_awaited = False
            self.on_groups()
        self._leases.on_applied(leads=self.leader.id == self._node.config.id)
        self._compactor.on_applied()

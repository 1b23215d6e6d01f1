"""Automatic compaction: the store keeps its history for ten minutes, or as long as it is set to.

The leader notes the revision from time to time, and compacts at the one that was noted long enough ago. A new leader
begins to note anew: history may be kept for twice the time, and never for less. Each node then frees what was compacted
away, in small steps.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from dledger.common.errors import DLedgerError
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.group.replica import Replica
from dledger.statemachine.runner import Runner
from dledger.store.commands import command
from dledger.store.machine import Store
from dledger.store.refusals import StoreRefused

logger = logging.getLogger(__name__)

NOTES = 10
"""So often in that time the revision is noted."""
STEPS_AT_ONCE = 200
"""Of freeing memory: under a millisecond."""
CLEAN_PAUSE_S = 0.005


class _Note(NamedTuple):
    at_s: float
    revision: int


class Compactor:
    """Of one node."""

    def __init__(self, runner: Runner[Store], replica: Callable[[], Replica], history_s: float) -> None:
        """``replica`` gives the replica of `meta`, and raises an error that passes while there is none."""
        self._runner = runner
        self._replica = replica
        self._history_s = history_s
        self._notes: deque[_Note] = deque()
        self._term = 0
        """The leader's, of these notes."""
        self._cleaned_to = 0
        """The compacted revision, once all before it was freed."""
        self._is_dirty = asyncio.Event()

    def on_applied(self) -> None:
        """Commands were applied."""
        if self._runner.machine.pairs.compact_revision != self._cleaned_to:
            self._is_dirty.set()

    async def run_cleaning(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._is_dirty.wait()
            store = self._runner.machine
            compact_revision = store.pairs.compact_revision
            if store.clean(STEPS_AT_ONCE):
                await asyncio.sleep(CLEAN_PAUSE_S)
            else:
                self._cleaned_to = compact_revision
                self._is_dirty.clear()
                self.on_applied()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(self._history_s / NOTES)
            try:
                await self._compact()
            except (DLedgerError, StoreRefused) as refusal:
                logger.info("the store is not compacted now", extra={"why": refusal})

    async def _compact(self) -> None:
        """Raises a refusal; the next look tries again."""
        replica = self._replica()
        if not replica.machine.is_serving:
            return
        if self._term != replica.term:
            self._notes.clear()
            self._term = replica.term
        now_s, pairs = replica.now_s(), self._runner.machine.pairs
        self._notes.append(_Note(now_s, pairs.revision))
        while len(self._notes) > 1 and self._notes[1].at_s <= now_s - self._history_s:
            self._notes.popleft()
        oldest = self._notes[0]
        if oldest.at_s <= now_s - self._history_s and oldest.revision > max(pairs.compact_revision, 1):
            request = rpc.CompactionRequest(revision=oldest.revision)
            await self._runner.submit(command(request), term=replica.term)
            logger.info("the store was compacted", extra={"revision": oldest.revision})

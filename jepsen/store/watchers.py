"""Clients that watch, and one that compacts the history behind them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from dledger.etcdpb import rpc_pb2 as rpc
from dledger.rpc.client.rpc_failure import RpcFailure
from jepsen.nemesis.api import happens
from jepsen.store.client import StoreClient
from jepsen.store.journal import Journal
from jepsen.store.kv import header_of
from jepsen.store.outcomes import Answered
from jepsen.store.watching import WatchStream

MOST_WATCHES = 3
"""On one stream."""
LIFE_S = (0.5, 6.0)
IDLE_S = 0.5
LEVEL_S = 2.0
"""For the progress that a watch asks for before it ends."""
PAUSE_S = 0.2
"""After a stream that broke: nobody tells when there is a listener again."""
LOOK_S = 0.5
PROGRESS = 0.3
"""How often a stream asks for its progress when it begins, and when nothing has come for a while."""
PROGRESS_AMONG_EVENTS = 0.03
FARTHEST_BACK = 1_500
FARTHEST_AHEAD = 40
COMPACT = "compact"
COMPACTS_EVERY_S = 2.0
KEPT_REVISIONS = 400


class Historian:
    """Watches all keys at one node, from the beginning, and goes on where it was after each break."""

    def __init__(self, process: int, client: StoreClient, journal: Journal, node: str) -> None:
        self._process = process
        self.client = client
        self._journal = journal
        self.node = node
        self.revision = 0
        """Up to here it was told."""

    async def run(self, ended: asyncio.Event) -> None:
        while not ended.is_set():
            await self._watch(ended.is_set)
            if not ended.is_set():
                await happens(ended, PAUSE_S)

    async def go_on_to(self, revision: int, within_s: float) -> bool:
        """Whether it was told of everything up to there, in time."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        while self.revision < revision and loop.time() < until_s:
            await self._watch(lambda: self.revision >= revision or loop.time() >= until_s)
            if self.revision < revision:
                await asyncio.sleep(PAUSE_S)
        return self.revision >= revision

    async def _watch(self, is_enough: Callable[[], bool]) -> None:
        """Until it is enough, or the stream breaks."""
        stream = WatchStream(self.client, self.node, self._journal, self._process)
        request = rpc.WatchCreateRequest(key=b"\0", range_end=b"\0", start_revision=self.revision + 1, prev_kv=True)
        try:
            await stream.create(request)
            while stream.has_watches and not is_enough():
                if not await stream.read(LOOK_S):
                    await stream.request_progress()
                self.revision = max(self.revision, stream.revision)
        except RpcFailure:
            return
        finally:
            stream.close()
        if stream.compact_revision:
            self.revision = max(self.revision, stream.compact_revision - 1)


class Watcher:
    """Watches some keys for a while, from the present on, from the past or from the future; then others."""

    def __init__(
        self, process: int, client: StoreClient, journal: Journal, chance: random.Random, prefixes: Sequence[str]
    ) -> None:
        self._process = process
        self._client = client
        self._journal = journal
        self._chance = chance
        self._prefixes = prefixes
        self._seen = 0
        """The highest revision."""

    async def run(self, ended: asyncio.Event) -> None:
        while not ended.is_set():
            node = self._client.node
            stream = WatchStream(self._client, node, self._journal, self._process)
            try:
                await self._watch(stream, ended)
            except RpcFailure:
                self._client.avoid(node)
                await happens(ended, PAUSE_S)
            finally:
                self._seen = max(self._seen, stream.revision)
                stream.close()
            self._client.move_on()

    async def _watch(self, stream: WatchStream, ended: asyncio.Event) -> None:
        for _ in range(self._chance.randrange(1, MOST_WATCHES + 1)):
            await stream.create(self._request())
        if self._chance.random() < PROGRESS:
            await stream.request_progress()  # also of those that have much to catch up with
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._chance.uniform(*LIFE_S)
        while stream.has_watches and not ended.is_set() and (left_s := until_s - loop.time()) > 0:
            has_come = await stream.read(min(left_s, LOOK_S))
            if self._chance.random() < (PROGRESS_AMONG_EVENTS if has_come else PROGRESS):
                await stream.request_progress()
            if self._chance.random() < 0.01:
                await happens(ended, self._chance.uniform(0, IDLE_S))
        if stream.has_watches:
            await stream.read_until_level(LEVEL_S)

    def _request(self) -> rpc.WatchCreateRequest:
        chance = self._chance
        prefix = chance.choice(self._prefixes)
        if chance.random() < 0.4:
            key, end = f"{prefix}{chance.randrange(5)}", ""
        else:
            key, end = prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)
        kinds = (rpc.WatchCreateRequest.NOPUT, rpc.WatchCreateRequest.NODELETE)
        return rpc.WatchCreateRequest(
            key=key.encode(),
            range_end=end.encode(),
            start_revision=self._start(),
            prev_kv=chance.random() < 0.5,
            filters=[kind for kind in kinds if chance.random() < 0.1],
            progress_notify=chance.random() < 0.2,
            fragment=chance.random() < 0.2,
        )

    def _start(self) -> int:
        seen = self._seen
        how = self._chance.random()
        if how < 0.3 or not seen:
            return 0
        if how < 0.6:
            return seen + 1
        if how < 0.9:
            return max(1, seen - self._chance.randrange(FARTHEST_BACK))
        return seen + self._chance.randrange(FARTHEST_AHEAD)


class Compactor:
    """Compacts behind what some historian was told of."""

    def __init__(self, process: int, client: StoreClient, journal: Journal, historians: Sequence[Historian]) -> None:
        self._process = process
        self._client = client
        self._journal = journal
        self._historians = historians

    async def run(self, ended: asyncio.Event) -> None:
        while not await happens(ended, COMPACTS_EVERY_S):
            revision = max(each.revision for each in self._historians) - KEPT_REVISIONS
            if revision <= 1:
                continue
            operation = self._journal.invoke(self._process, COMPACT, at=revision)
            asked = await self._client.call("KV.Compact", rpc.CompactionRequest(revision=revision))
            found = header_of(asked.outcome.message) if isinstance(asked.outcome, Answered) else {}
            self._journal.complete(operation, asked, **found)

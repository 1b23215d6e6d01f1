"""A whole cluster as a program sees it: its logs over one set of connections, its groups, and its store."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from dledger.client.arguments import check_group
from dledger.client.client_options import ClientOptions, parse_endpoints
from dledger.client.connections import Connections
from dledger.client.groups import Groups
from dledger.client.leader_locator import LeaderLocator
from dledger.client.log import Log
from dledger.client.misuse import AsyncClient
from dledger.client.store.store import Store
from dledger.client.waits import Waits
from dledger.common.errors import Code, error
from dledger.common.types import DEFAULT_GROUP, META_GROUP
from dledger.rpc.client.cancellation import client_closed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType


class Cluster(AsyncClient):
    """A client of a cluster, used as ``async with dledger.connect_cluster("host:port,…") as cluster:``, in one event
    loop.

    All its logs share one gRPC channel a node, the facts about the nodes, and one task that renews these.
    """

    def __init__(self, endpoints: str | Sequence[str], options: ClientOptions) -> None:
        self._endpoints = parse_endpoints(endpoints)
        self._options = replace(options, rng=options.rng or random.Random())
        self._logs: dict[str, Log] = {}
        self._ending: list[Log] = []
        """Logs that were replaced while they were closing."""
        self._open = False
        self._closing: asyncio.Task[None] | None = None
        """From the first call of ``close`` on: one task, for all its callers."""

    async def __aenter__(self) -> Self:
        options = self._options
        assert options.rng is not None, "set by __init__"
        self._connections = Connections(self._endpoints, options.cluster_id)
        self._directory = LeaderLocator(self._connections, META_GROUP)
        waits = Waits(options.on_wait)
        self._groups = Groups(
            self._directory, options.timeout_ms, options.rng, waits=waits, check_open=self._check_open
        )
        self._logs, self._ending = {}, []
        self._store: Store | None = None
        self._open, self._closing = True, None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def log(self, group: str = DEFAULT_GROUP) -> Log:
        """The log of a group, open. Nothing is sent before its first use: a group that does not exist is told then.

        It is the same ``Log`` for every call with that group, until it is closed, and its callers share its batches.
        Use it as it is: the cluster closes it. Or use it in an ``async with``, which closes it at the end of the last
        such block. Then the next call opens another one. Raises UNEXPECTED_ARGUMENT (the name), SHUTTING_DOWN.
        """
        self._check_open()
        check_group(group)
        log = self._logs.get(group)
        if log is None or log.closed:
            self._ending = [each for each in (*self._ending, *filter(None, [log])) if not each.has_ended]
            options = replace(self._options, group=group)
            log = Log(self._endpoints, options, shared=self._connections)
            log.open()
            self._logs[group] = log
        return log

    @property
    def groups(self) -> Groups:
        """Which groups there are: create, list, describe, delete."""
        self._check_open()
        return self._groups

    def store(self) -> Store:
        """The key-value store of the cluster: the same ``Store`` for every call. Nothing is sent before its first
        use."""
        self._check_open()
        if self._store is None:
            options = self._options
            assert options.rng is not None, "set by __init__"
            self._store = Store(self._connections, self._directory, options.timeout_ms, options.rng, self._check_open)
        return self._store

    async def close(self) -> None:
        """Closes the store and all logs at once, each as ``Log.close`` does, then the connections."""
        if self._open:
            self._open = False
            self._closing = asyncio.create_task(self._close(), name="dledger-close-cluster")
        if self._closing is not None:
            await asyncio.shield(self._closing)

    async def give_up(self) -> None:
        """Closes without waiting for any outcome, also if ``close`` is waiting for some: those are told then."""
        if self._closing is None and not self._open:
            return
        ending = [log.give_up() for log in (*self._logs.values(), *self._ending)]
        if self._store is not None:
            ending.append(self._store.end())
        await asyncio.gather(*ending)
        await self.close()

    async def _close(self) -> None:
        closing = [log.close() for log in (*self._logs.values(), *self._ending)]
        if self._store is not None:
            closing.append(self._store.close())
        try:
            await asyncio.gather(*closing)
        finally:
            await self._connections.close()
            await self._directory.close()

    def _check_open(self) -> None:
        if self._closing is not None:
            raise client_closed()
        if not self._open:
            text = "the client is not open: use it inside `async with dledger.connect_cluster(…)`"
            raise error(Code.SHUTTING_DOWN, text)

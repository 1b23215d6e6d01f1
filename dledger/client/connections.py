"""Shared by the logs of one client: a channel a node, the facts about the cluster, and one task that renews them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Protocol

from dledger.client.metadata import ClusterBook
from dledger.common.errors import DLedgerError
from dledger.rpc.client.channels import Channels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dledger.client.metadata import Metadata

REFRESH_INTERVAL_S = 5.0
"""How often each group's leader is asked for the members. So a client that needs nothing else is not left behind when
they are replaced one by one."""


class Connections:
    """The connections of one client to one cluster."""

    def __init__(self, endpoints: Sequence[str], cluster_id: str = "") -> None:
        self.channels = Channels()
        self.book = ClusterBook(endpoints, cluster_id)
        self.refresher = Refresher()

    async def close(self) -> None:
        """Ends every call under way with SHUTTING_DOWN."""
        await self.channels.close()
        await self.refresher.close()


class Refreshed(Protocol):
    """A group with members to be asked for again and again."""

    async def newest_metadata(self) -> Metadata: ...


class Refresher:
    """One task for all groups of a client, which take turns: each has one in ``REFRESH_INTERVAL_S``."""

    def __init__(self) -> None:
        self._turns: dict[Refreshed, None] = {}
        """The next one stands first."""
        self._urgent: dict[Refreshed, None] = {}
        self._hurried = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add(self, group: Refreshed) -> None:
        """From now on, until it is removed."""
        if group in self._turns:
            return
        self._turns[group] = None
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="dledger-members")

    def remove(self, group: Refreshed) -> None:
        """It takes no turns any more."""
        self._turns.pop(group, None)
        self._urgent.pop(group, None)

    def hurry(self, group: Refreshed) -> None:
        """Its next turn is now."""
        if group in self._turns:
            self._urgent[group] = None
            self._hurried.set()

    async def close(self) -> None:
        """Ends the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            group = await self._next()
            if group is not None:
                with contextlib.suppress(DLedgerError):  # nobody answers: what is known stays, until somebody does
                    await group.newest_metadata()

    async def _next(self) -> Refreshed | None:
        """The group whose turn it is, when it has come; None: no group's, after all."""
        deadline_s = asyncio.get_running_loop().time() + REFRESH_INTERVAL_S / max(1, len(self._turns))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline_s):
                while not self._urgent:
                    self._hurried.clear()
                    await self._hurried.wait()
        group = next(iter(self._urgent or self._turns), None)
        if group is not None:
            self._urgent.pop(group, None)
            del self._turns[group]
            self._turns[group] = None
        return group

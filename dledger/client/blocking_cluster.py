"""``Cluster`` for programs without an event loop: one thread for its logs and its store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, TypeVar

from dledger.client.blocking import BlockingLog
from dledger.client.loop_thread import LoopThread
from dledger.client.misuse import BlockingClient
from dledger.client.store.blocking import BlockingStore
from dledger.common.types import DEFAULT_GROUP

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    from dledger.client.admin_results import GroupInfo
    from dledger.client.cluster import Cluster
    from dledger.client.groups import Groups
    from dledger.client.log import Log
    from dledger.client.store.store import Store

Result = TypeVar("Result")


class BlockingCluster(BlockingClient):
    """``Cluster``, blocking: ``with dledger.connect_cluster_blocking("host:port,…") as cluster:``. Safe to share
    between threads."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._thread = LoopThread(cluster, "dledger.connect_cluster_blocking(…)")

    def __enter__(self) -> Self:
        self._thread.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Waits for pending appends as ``Cluster.close`` does, and ends the thread."""
        self._thread.close()

    def log(self, group: str = DEFAULT_GROUP) -> BlockingLog:
        """The log of a group, open, as ``Cluster.log``."""

        async def opened() -> Log:
            return self._cluster.log(group)

        return BlockingLog(self._thread.run(opened()), self._thread)

    def store(self) -> BlockingStore:
        """The key-value store of the cluster, as ``Cluster.store``."""

        async def opened() -> Store:
            return self._cluster.store()

        return BlockingStore(self._thread.run(opened()), self._thread)

    @property
    def groups(self) -> BlockingGroups:
        """Which groups there are: create, list, describe, delete."""
        return BlockingGroups(self._cluster, self._thread)


class BlockingGroups:
    """``Groups``, blocking: every method does, raises and promises what ``Groups``' does."""

    def __init__(self, cluster: Cluster, thread: LoopThread) -> None:
        self._cluster = cluster
        self._thread = thread

    def create(
        self,
        name: str,
        members: Sequence[str] | None = None,
        *,
        dry_run: bool = False,
        timeout_ms: float | None = None,
    ) -> GroupInfo:
        """Makes a group."""
        return self._call(lambda groups: groups.create(name, members, dry_run=dry_run, timeout_ms=timeout_ms))

    def list(self, *, timeout_ms: float | None = None) -> list[GroupInfo]:
        """All groups of the cluster, by name."""
        return self._call(lambda groups: groups.list(timeout_ms=timeout_ms))

    def describe(self, name: str, *, timeout_ms: float | None = None) -> GroupInfo:
        """What the directory has of one group."""
        return self._call(lambda groups: groups.describe(name, timeout_ms=timeout_ms))

    def delete(
        self,
        name: str,
        *,
        id: int = 0,  # noqa: A002  # what the directory calls it
        force: bool = False,
        dry_run: bool = False,
        timeout_ms: float | None = None,
    ) -> GroupInfo:
        """Removes a group and all its records from every node, for good."""
        return self._call(
            lambda groups: groups.delete(name, id=id, force=force, dry_run=dry_run, timeout_ms=timeout_ms)
        )

    def _call(self, method: Callable[[Groups], Awaitable[Result]]) -> Result:
        async def work() -> Result:
            return await method(self._cluster.groups)

        return self._thread.run(work())

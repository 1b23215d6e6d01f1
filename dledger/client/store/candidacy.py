"""A place in a queue of keys, as etcd's recipes have it: the key of the lowest create revision is first.

::

    NAME/694d7b2a…   created at 17   ← the holder: its fencing token is 17
    NAME/1f03a9c4…   created at 21   waits until 17 is gone
    NAME/5e88d01b…   created at 30   waits until 21 is gone

Each key goes with a lease, so a holder whose program ends makes room. The names are those of etcd's Go package
``concurrency``: its mutexes and elections, and these, stand in one queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

from dledger.client.store.keys import Text, as_bytes, as_key, prefix_end
from dledger.client.store.lease import Lease, bounded
from dledger.client.store.results import KeyValue, Pairs
from dledger.client.store.txn import Compare, Op
from dledger.common.errors import Compacted, LeaseLost
from dledger.etcdpb import rpc_pb2 as rpc

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from dledger.client.store.results import Deleted, TxnDone
    from dledger.client.store.watch import Watch


class StoreCalls(Protocol):
    """The calls of ``Store`` on which the recipes stand."""

    async def get(self, key: Text) -> KeyValue | None: ...

    async def delete(self, key: Text) -> Deleted: ...

    async def txn(
        self, compare: Iterable[Compare], success: Iterable[Op], failure: Iterable[Op] = (), /
    ) -> TxnDone: ...

    async def read(self, request: rpc.RangeRequest, timeout_ms: float | None = None) -> rpc.RangeResponse: ...

    def watch(self, key: Text | None = None, *, prefix: Text | None = None, start_revision: int = 0) -> Watch: ...

    def lease(self, ttl_s: int) -> Lease: ...


class Candidacy:
    """Entered once; in an ``async with`` it is held between its beginning and its end."""

    what = "the lock"

    def __init__(
        self, store: StoreCalls, name: Text, lease: Lease, *, value: Text = b"", owns_lease: bool, wait_ms: float | None
    ) -> None:
        """``owns_lease``: the lease is granted and revoked with it; otherwise the key alone goes at the end."""
        self._store = store
        self._prefix = queue_prefix(name)
        self._value = as_bytes("value", value)
        self._owns_lease = owns_lease
        self._wait_ms = wait_ms
        self.lease = lease
        self.key = b""
        """Whoever waits behind it waits until this key is gone."""
        self.token = 0
        """The fencing token: higher than that of every holder before. It is the create revision of ``key``."""

    async def __aenter__(self) -> Self:
        """Waits until all before it are gone. Raises DeadlineExceeded behind ``wait_ms``, LeaseLost, Unavailable."""
        if self._owns_lease:
            await self.lease.__aenter__()
        try:
            await bounded(self.lease.while_alive(self._enter()), self._wait_ms, f"{self.what} was not free")
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        was_lost = not self.is_held
        await self._leave()
        if was_lost and value is None:
            raise LeaseLost(f"{self.what} was lost before its end: what was done under it may have met another's work")

    @property
    def is_held(self) -> bool:
        """Whether it is surely held, by this machine's clock. Others' writes are kept out by ``compare`` alone."""
        return bool(self.token) and self.lease.is_alive

    def check(self) -> None:
        """Raises LeaseLost unless it is held."""
        self.lease.check()

    @property
    def compare(self) -> Compare:
        """Holds in a transaction while it is held: nobody else's change comes between."""
        return Compare.created(self.key, "==", self.token)

    async def _enter(self) -> None:
        self.key = self._prefix + f"{self.lease.id:x}".encode()
        done = await self._store.txn(
            [Compare.absent(self.key)],
            [Op.put(self.key, self._value, lease=self.lease), _first_created(self._prefix)],
            [Op.get(self.key), _first_created(self._prefix)],
        )
        mine, first = done.responses
        if isinstance(mine, Pairs):
            token = mine[0].create_revision
            await self._entered_again(token, mine[0])
        else:
            token = done.revision
        is_first = isinstance(first, Pairs) and first and first[0].create_revision == token
        if not is_first:
            await self._wait_for_those_before(token)
            found = await self._store.get(self.key)
            if found is None or found.create_revision != token:
                raise LeaseLost(f"{self.what} was lost while it was waited for: its key is gone")
        self.token = token

    async def _entered_again(self, token: int, mine: KeyValue) -> None:
        """The lease has a key here already."""
        if mine.value != self._value:
            compare = Compare.created(self.key, "==", token)
            await self._store.txn([compare], [Op.put(self.key, self._value, lease=self.lease)])

    async def _wait_for_those_before(self, token: int) -> None:
        while True:
            last = await self._last_before(token)
            if not last.kvs:
                return
            await self._wait_until_gone(last.kvs[0].key, last.header.revision + 1)

    async def _last_before(self, token: int) -> rpc.RangeResponse:
        request = rpc.RangeRequest(
            key=self._prefix,
            range_end=prefix_end(self._prefix),
            limit=1,
            sort_order=rpc.RangeRequest.DESCEND,
            sort_target=rpc.RangeRequest.CREATE,
            max_create_revision=token - 1,
            keys_only=True,
        )
        return await self._store.read(request)

    async def _wait_until_gone(self, key: bytes, from_revision: int) -> None:
        async with self._store.watch(key, start_revision=from_revision) as watch:
            try:
                async for batch in watch:
                    if any(event.is_delete for event in batch):
                        return
            except Compacted:
                return  # whether it is gone is asked again

    async def _leave(self) -> None:
        self.token = 0
        if self._owns_lease:
            await self.lease.end()
        elif self.key and self.lease.is_alive:
            await self._store.delete(self.key)


class Lock(Candidacy):
    """``async with store.lock("name") as lock:``: held by one program at a time.

    A holder that stands still, or is cut off, loses the lock when its lease expires, and may not know yet. So a change
    that must not meet another holder's is a transaction with ``lock.compare``; another system is given ``lock.token``,
    and refuses any token below the highest that it has seen.
    """


class Leadership(Candidacy):
    """Of an election, while it lasts; as ``Lock``, with a value for all to see."""

    what = "the leadership"

    async def proclaim(self, value: Text) -> int:
        """Gives the leader's key another value, and returns the revision. Raises LeaseLost when it leads no more."""
        done = await self._store.txn([self.compare], [Op.put(self.key, value, lease=self.lease)])
        if not done.succeeded:
            raise LeaseLost(f"{self.what} was lost: nothing was proclaimed")
        return done.revision


def queue_prefix(name: Text) -> bytes:
    return as_key(name, "name") + b"/"


def first_created(prefix: bytes) -> rpc.RangeRequest:
    """A request for the holder."""
    return rpc.RangeRequest(
        key=prefix,
        range_end=prefix_end(prefix),
        limit=1,
        sort_order=rpc.RangeRequest.ASCEND,
        sort_target=rpc.RangeRequest.CREATE,
    )


def _first_created(prefix: bytes) -> Op:
    return Op(rpc.RequestOp(request_range=first_created(prefix)))

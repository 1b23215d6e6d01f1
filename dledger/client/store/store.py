"""The store as a program sees it: keys and values, transactions and watches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.client.arguments import check_amount, check_flag, check_timeout_ms
from dledger.client.store.arguments import check_revision, check_ttl_s, lease_id
from dledger.client.store.backup import backup
from dledger.client.store.candidacy import Lock
from dledger.client.store.election import Election
from dledger.client.store.keys import KeyRange, as_key, key_or_prefix, range_of
from dledger.client.store.lease import Lease
from dledger.client.store.lease_calls import StoreLeaseCalls
from dledger.client.store.nodes import StoreNodes
from dledger.client.store.reader import Reader
from dledger.client.store.results import Deleted, KeyValue, LeaseTimes, Pairs, StoreStatus, TxnDone
from dledger.client.store.txn import Compare, Op, delete_request, put_request, txn_done, txn_request
from dledger.client.store.watch import Watch
from dledger.client.store.writer import Writer
from dledger.common.errors import InvalidRequest
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.v1 import store_service_pb2

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator, Callable, Iterable

    from dledger.client.connections import Connections
    from dledger.client.leader_locator import LeaderLocator
    from dledger.client.store.arguments import LeaseLike
    from dledger.client.store.keys import Text

DEFAULT_TTL_S = 10


class Store:
    """``cluster.store()``: a replicated key-value store with etcd's semantics. Keys and values are bytes, or str, which
    is sent as UTF-8; they come back as bytes.

    A change is carried out once, however often the client has to send it, and over the loss of nodes. Changes under way
    at the same time have no order. Reads are linearizable: they see every change that was answered before.

    Calls raise UNEXPECTED_ARGUMENT for arguments that cannot be served, and Unavailable or DeadlineExceeded if nobody
    answers for ``timeout_ms``. Then surely nothing was changed. A change raises OutcomeUnknown if it may have been
    carried out, or may be yet.
    """

    def __init__(
        self,
        connections: Connections,
        leaders: LeaderLocator,
        timeout_ms: float,
        rng: random.Random,
        check_open: Callable[[], None],
    ) -> None:
        self._timeout_ms = timeout_ms
        self._rng = rng
        self._check_open = check_open
        self._nodes = StoreNodes(connections, leaders, rng)
        self._reader = Reader(self._nodes, rng)
        self._writer = Writer(self._nodes, rng)
        self._leases = StoreLeaseCalls(self._nodes, self._reader, self._writer, timeout_ms, rng)

    async def close(self) -> None:
        """Waits for the outcomes of pending changes, at most the default timeout; then ends them."""
        await self._writer.close(self._timeout_ms / 1000)

    async def end(self) -> None:
        """Closes without waiting for any outcome."""
        await self._writer.end()

    def _begin(self, timeout_ms: float | None) -> float:
        """How long the call may take. Raises UNEXPECTED_ARGUMENT, SHUTTING_DOWN."""
        self._check_open()
        if timeout_ms is None:
            return self._timeout_ms
        check_timeout_ms(timeout_ms)
        return timeout_ms

    # Reading -----------------------------------------------------------------------------------------------------

    async def get(self, key: Text, revision: int = 0, *, timeout_ms: float | None = None) -> KeyValue | None:
        """A key, as of now or of an earlier revision; None: it is not there. Raises Compacted, FutureRevision."""
        timeout_ms = self._begin(timeout_ms)
        check_revision(revision)
        answer = await self._reader.range(rpc.RangeRequest(key=as_key(key), revision=revision), timeout_ms)
        return KeyValue.from_wire(answer.kvs[0]) if answer.kvs else None

    async def range(
        self,
        *,
        prefix: Text | None = None,
        start: Text | None = None,
        end: Text | None = None,
        limit: int = 0,
        revision: int = 0,
        keys_only: bool = False,
        descending: bool = False,
        timeout_ms: float | None = None,
    ) -> Pairs:
        """The keys with ``prefix``, or from ``start`` to before ``end``, all as of one revision; no argument: all keys.

        They are read in pages, and ``timeout_ms`` is for each page. Raises Compacted, FutureRevision. ``limit``: that
        many at most, 0: all. ``descending``: from the last one back.
        """
        found: list[KeyValue] = []
        at = total = 0
        pages = self.pages(
            prefix=prefix,
            start=start,
            end=end,
            limit=limit,
            revision=revision,
            keys_only=keys_only,
            descending=descending,
            timeout_ms=timeout_ms,
        )
        async for page in pages:
            found += page
            at, total = page.revision, page.total
        return Pairs(found, at, total)

    async def pages(
        self,
        *,
        prefix: Text | None = None,
        start: Text | None = None,
        end: Text | None = None,
        limit: int = 0,
        revision: int = 0,
        keys_only: bool = False,
        descending: bool = False,
        timeout_ms: float | None = None,
    ) -> AsyncGenerator[Pairs]:
        """As ``range``, page by page, for ranges that are larger than memory should hold; all pages have one revision.
        Raises Compacted also when the history of that revision goes while they are read."""
        timeout_ms = self._begin(timeout_ms)
        of = range_of(prefix, start, end)
        check_amount("limit", limit)
        check_revision(revision)
        check_flag("keys_only", keys_only)
        check_flag("descending", descending)
        order = rpc.RangeRequest.DESCEND if descending else rpc.RangeRequest.NONE
        request = rpc.RangeRequest(revision=revision, keys_only=keys_only, sort_order=order)
        async for page in self._reader.pages(of, request, limit, timeout_ms):
            yield page

    async def count(
        self,
        *,
        prefix: Text | None = None,
        start: Text | None = None,
        end: Text | None = None,
        revision: int = 0,
        timeout_ms: float | None = None,
    ) -> int:
        """How many keys the range has. Raises Compacted, FutureRevision."""
        timeout_ms = self._begin(timeout_ms)
        of = range_of(prefix, start, end)
        check_revision(revision)
        request = rpc.RangeRequest(key=of.key, range_end=of.end, revision=revision, count_only=True)
        return (await self._reader.range(request, timeout_ms)).count

    # Changing ----------------------------------------------------------------------------------------------------

    async def put(self, key: Text, value: Text, *, lease: LeaseLike = 0, timeout_ms: float | None = None) -> int:
        """Gives a key its value, and returns the revision of the change. Without a ``lease`` the key stays until it is
        deleted, also if it had one before. Raises LeaseNotFound, NoSpace."""
        timeout_ms = self._begin(timeout_ms)
        answer: rpc.PutResponse = await self._writer.submit("put", put_request(key, value, lease), timeout_ms)
        return answer.header.revision

    async def delete(
        self, key: Text | None = None, *, prefix: Text | None = None, timeout_ms: float | None = None
    ) -> Deleted:
        """Deletes one key, or all with ``prefix``, at one revision."""
        timeout_ms = self._begin(timeout_ms)
        request = delete_request(key_or_prefix(key, prefix))
        answer: rpc.DeleteRangeResponse = await self._writer.submit("delete_range", request, timeout_ms)
        return Deleted(answer.deleted, answer.header.revision)

    async def txn(
        self,
        compare: Iterable[Compare] = (),
        success: Iterable[Op] = (),
        failure: Iterable[Op] = (),
        *,
        timeout_ms: float | None = None,
    ) -> TxnDone:
        """Carries out ``success`` if all comparisons hold, else ``failure``, all of it at one revision or none of it.

        A transaction that was sent again returns what it did the first time. Raises LeaseNotFound, NoSpace, Compacted.
        """
        timeout_ms = self._begin(timeout_ms)
        answer = await self._writer.submit("txn", txn_request(compare, success, failure), timeout_ms)
        return txn_done(answer)

    async def compact(self, revision: int, *, timeout_ms: float | None = None) -> None:
        """Forgets what was overwritten before ``revision``: reads of the past and watches go back no further. Raises
        Compacted if it was compacted there, or later, already, and FutureRevision."""
        timeout_ms = self._begin(timeout_ms)
        check_revision(revision)
        await self._writer.submit("compact", rpc.CompactionRequest(revision=revision), timeout_ms)

    # Watching ----------------------------------------------------------------------------------------------------

    def watch(
        self,
        key: Text | None = None,
        *,
        prefix: Text | None = None,
        start: Text | None = None,
        end: Text | None = None,
        start_revision: int = 0,
        before: bool = False,
        timeout_ms: float | None = None,
    ) -> Watch:
        """Every change of a key, or of the keys of a range, from ``start_revision`` on; 0: from now on. See ``Watch``.

        ``before``: each event brings what the key was before. ``timeout_ms``: for how long no node may serve the watch
        before it fails. Time in which nothing changes does not count.
        """
        timeout_ms = self._begin(timeout_ms)
        of = _watched(key, prefix, start, end)
        check_revision(start_revision, "start_revision")
        check_flag("before", before)
        return Watch(of, start_revision, wants_before=before, nodes=self._nodes, timeout_ms=timeout_ms, rng=self._rng)

    # Leases, locks, elections --------------------------------------------------------------------------------------

    def lease(self, ttl_s: int, *, timeout_ms: float | None = None) -> Lease:
        """A lease that this program keeps alive, for ``async with``: see ``Lease``. ``timeout_ms``: of its grant."""
        timeout_ms = self._begin(timeout_ms)
        check_ttl_s(ttl_s)
        return Lease(self._leases, ttl_s, timeout_ms)

    def lock(
        self, name: Text, ttl_s: int = DEFAULT_TTL_S, *, lease: Lease | None = None, wait_ms: float | None = None
    ) -> Lock:
        """A lock that one program holds at a time, for ``async with``: see ``Lock``. It waits for those before it, for
        ``wait_ms`` at most, None: as long as it takes.

        When this program ends without a word, the lock is free ``ttl_s`` later. ``lease``: the lock goes with this one
        instead of a lease of its own.
        """
        self._begin(wait_ms)
        held = self.lease(ttl_s) if lease is None else lease
        return Lock(self, name, held, owns_lease=lease is None, wait_ms=wait_ms)

    def election(self, name: Text, ttl_s: int = DEFAULT_TTL_S) -> Election:
        """An election: ``async with store.election("name").campaign("me") as leadership:``. See ``Election``."""
        self._begin(None)
        check_ttl_s(ttl_s)
        return Election(self, name, ttl_s)

    async def grant_lease(
        self,
        ttl_s: int,
        *,
        id: int = 0,  # noqa: A002  # etcd's word
        timeout_ms: float | None = None,
    ) -> LeaseTimes:
        """A lease that nobody keeps alive by itself: it expires unless ``keep_lease_alive`` is called in time. ``id``:
        the one that it gets, 0: the store chooses. Raises LEASE_EXISTS."""
        timeout_ms = self._begin(timeout_ms)
        check_ttl_s(ttl_s)
        granted = await self._leases.grant(ttl_s, timeout_ms, lease_id(id))
        return LeaseTimes(granted.id, granted.ttl_s, granted.ttl_s)

    async def keep_lease_alive(self, lease: LeaseLike, *, timeout_ms: float | None = None) -> int:
        """Gives a lease its full time again, and returns it in seconds. Raises LeaseNotFound."""
        timeout_ms = self._begin(timeout_ms)
        return (await self._leases.keep_alive(lease_id(lease), timeout_ms)).ttl_s

    async def revoke_lease(self, lease: LeaseLike, *, timeout_ms: float | None = None) -> None:
        """Ends a lease; its keys are deleted at one revision. Raises LeaseNotFound."""
        timeout_ms = self._begin(timeout_ms)
        await self._leases.revoke(lease_id(lease), timeout_ms)

    async def lease_times(self, lease: LeaseLike, *, keys: bool = False, timeout_ms: float | None = None) -> LeaseTimes:
        """How long a lease lives without a keepalive; with ``keys``, its keys. Raises LeaseNotFound."""
        timeout_ms = self._begin(timeout_ms)
        check_flag("keys", keys)
        return await self._leases.times(lease_id(lease), keys=keys, timeout_ms=timeout_ms)

    async def leases(self, *, timeout_ms: float | None = None) -> list[int]:
        """The ids of all leases."""
        return await self._leases.all(self._begin(timeout_ms))

    # The store itself ----------------------------------------------------------------------------------------------

    async def read(self, request: rpc.RangeRequest, timeout_ms: float | None = None) -> rpc.RangeResponse:
        """A range as etcd's API has it, for what the other methods do not offer."""
        return await self._reader.range(request, self._begin(timeout_ms))

    async def backup(self, *, timeout_ms: float | None = None) -> AsyncGenerator[bytes]:
        """The bytes of a copy of the whole store, of one revision, for a file; the same as ``etcdctl snapshot save``
        writes. Its last 32 bytes are a digest of the others: raises CORRUPT_LOG if they are not. Raises Unavailable if
        the node that streams it is gone in between. ``timeout_ms``: for each piece."""
        timeout_ms = self._begin(timeout_ms)
        async for blob in backup(self._nodes, timeout_ms, self._rng):
            yield blob

    async def status(self, *, timeout_ms: float | None = None) -> StoreStatus:
        """The store as one node has it."""
        timeout_ms = self._begin(timeout_ms)
        request = store_service_pb2.StoreServiceStatusRequest()
        told = await self._reader.ask(lambda stubs: stubs.store.Status, request, timeout_ms)
        return StoreStatus(
            told.revision,
            max(0, told.compact_revision),
            told.keys,
            told.size_bytes,
            told.leases,
            told.watches,
            told.hash,
        )


def _watched(key: Text | None, prefix: Text | None, start: Text | None, end: Text | None) -> KeyRange:
    """A key, or a range; nothing: all keys. Raises UNEXPECTED_ARGUMENT."""
    if key is None:
        return range_of(prefix, start, end)
    if prefix is not None or start is not None or end is not None:
        raise InvalidRequest("a key and a range are given: one of the two names what is watched")
    return KeyRange(as_key(key))

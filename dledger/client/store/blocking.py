"""``Store`` for programs without an event loop: every call blocks until it has its outcome. Any thread may call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from dledger.client.store.candidacy import Candidacy, Leadership, Lock
from dledger.client.store.lease import Lease
from dledger.client.store.store import DEFAULT_TTL_S

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Iterator
    from types import TracebackType

    from dledger.client.loop_thread import LoopThread
    from dledger.client.store.arguments import LeaseLike
    from dledger.client.store.election import Election
    from dledger.client.store.keys import Text
    from dledger.client.store.results import Deleted, KeyValue, LeaseTimes, Pairs, StoreStatus, TxnDone, WatchBatch
    from dledger.client.store.store import Store
    from dledger.client.store.txn import Compare, Op
    from dledger.client.store.watch import Watch

Result = TypeVar("Result")
Told = TypeVar("Told")
Held = TypeVar("Held", bound=Candidacy)


class BlockingStore:
    """``Store``, blocking: every method does, raises and promises what ``Store``'s does."""

    def __init__(self, store: Store, thread: LoopThread) -> None:
        self._store = store
        self._thread = thread

    def _call(self, method: Callable[[Store], Awaitable[Result]]) -> Result:
        async def work() -> Result:
            return await method(self._store)

        return self._thread.run(work())

    def _made(self, make: Callable[[Store], Result]) -> Result:
        async def work() -> Result:
            return make(self._store)

        return self._thread.run(work())

    # Reading -----------------------------------------------------------------------------------------------------

    def get(self, key: Text, revision: int = 0, *, timeout_ms: float | None = None) -> KeyValue | None:
        """A key, as of now or of an earlier revision; None: it is not there."""
        return self._call(lambda store: store.get(key, revision, timeout_ms=timeout_ms))

    def range(
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
        """The keys of a range, all as of one revision."""
        return self._call(
            lambda store: store.range(
                prefix=prefix,
                start=start,
                end=end,
                limit=limit,
                revision=revision,
                keys_only=keys_only,
                descending=descending,
                timeout_ms=timeout_ms,
            )
        )

    def pages(
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
    ) -> Iterator[Pairs]:
        """As ``range``, page by page."""
        pages = self._made(
            lambda store: store.pages(
                prefix=prefix,
                start=start,
                end=end,
                limit=limit,
                revision=revision,
                keys_only=keys_only,
                descending=descending,
                timeout_ms=timeout_ms,
            )
        )
        return _each(self._thread, pages)

    def count(
        self,
        *,
        prefix: Text | None = None,
        start: Text | None = None,
        end: Text | None = None,
        revision: int = 0,
        timeout_ms: float | None = None,
    ) -> int:
        """How many keys the range has."""
        return self._call(
            lambda store: store.count(prefix=prefix, start=start, end=end, revision=revision, timeout_ms=timeout_ms)
        )

    def backup(self, *, timeout_ms: float | None = None) -> Iterator[bytes]:
        """The bytes of a copy of the whole store, of one revision."""
        return _each(self._thread, self._made(lambda store: store.backup(timeout_ms=timeout_ms)))

    def status(self, *, timeout_ms: float | None = None) -> StoreStatus:
        """The store as one node has it."""
        return self._call(lambda store: store.status(timeout_ms=timeout_ms))

    # Changing ----------------------------------------------------------------------------------------------------

    def put(self, key: Text, value: Text, *, lease: LeaseLike = 0, timeout_ms: float | None = None) -> int:
        """Gives a key its value, and returns the revision of the change."""
        return self._call(lambda store: store.put(key, value, lease=lease, timeout_ms=timeout_ms))

    def delete(
        self, key: Text | None = None, *, prefix: Text | None = None, timeout_ms: float | None = None
    ) -> Deleted:
        """Deletes one key, or all with ``prefix``, at one revision."""
        return self._call(lambda store: store.delete(key, prefix=prefix, timeout_ms=timeout_ms))

    def txn(
        self,
        compare: Iterable[Compare] = (),
        success: Iterable[Op] = (),
        failure: Iterable[Op] = (),
        *,
        timeout_ms: float | None = None,
    ) -> TxnDone:
        """Carries out ``success`` if all comparisons hold, else ``failure``."""
        return self._call(lambda store: store.txn(compare, success, failure, timeout_ms=timeout_ms))

    def compact(self, revision: int, *, timeout_ms: float | None = None) -> None:
        """Forgets what was overwritten before ``revision``."""
        self._call(lambda store: store.compact(revision, timeout_ms=timeout_ms))

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
    ) -> BlockingWatch:
        """Every change of a key, or of the keys of a range: ``for batch in store.watch(prefix="jobs/"):``."""
        watch = self._made(
            lambda store: store.watch(
                key,
                prefix=prefix,
                start=start,
                end=end,
                start_revision=start_revision,
                before=before,
                timeout_ms=timeout_ms,
            )
        )
        return BlockingWatch(watch, self._thread)

    # Leases, locks, elections --------------------------------------------------------------------------------------

    def lease(self, ttl_s: int, *, timeout_ms: float | None = None) -> BlockingLease:
        """A lease that is kept alive in the background: ``with store.lease(10) as lease:``."""
        return BlockingLease(self._made(lambda store: store.lease(ttl_s, timeout_ms=timeout_ms)), self._thread)

    def lock(
        self,
        name: Text,
        ttl_s: int = DEFAULT_TTL_S,
        *,
        lease: BlockingLease | None = None,
        wait_ms: float | None = None,
    ) -> BlockingHeld[Lock]:
        """A lock that one program holds at a time: ``with store.lock("name") as lock:``."""
        of = None if lease is None else lease.of
        lock = self._made(lambda store: store.lock(name, ttl_s, lease=of, wait_ms=wait_ms))
        return BlockingHeld(lock, self._thread)

    def election(self, name: Text, ttl_s: int = DEFAULT_TTL_S) -> BlockingElection:
        """An election: ``with store.election("name").campaign("me") as leadership:``."""
        return BlockingElection(self._made(lambda store: store.election(name, ttl_s)), self._thread)

    def grant_lease(
        self,
        ttl_s: int,
        *,
        id: int = 0,  # noqa: A002  # etcd's word
        timeout_ms: float | None = None,
    ) -> LeaseTimes:
        """A lease that nobody keeps alive by itself."""
        return self._call(lambda store: store.grant_lease(ttl_s, id=id, timeout_ms=timeout_ms))

    def keep_lease_alive(self, lease: LeaseLike, *, timeout_ms: float | None = None) -> int:
        """Gives a lease its full time again, and returns it in seconds."""
        return self._call(lambda store: store.keep_lease_alive(lease, timeout_ms=timeout_ms))

    def revoke_lease(self, lease: LeaseLike, *, timeout_ms: float | None = None) -> None:
        """Ends a lease, and deletes its keys."""
        self._call(lambda store: store.revoke_lease(lease, timeout_ms=timeout_ms))

    def lease_times(self, lease: LeaseLike, *, keys: bool = False, timeout_ms: float | None = None) -> LeaseTimes:
        """How long a lease lives without a keepalive."""
        return self._call(lambda store: store.lease_times(lease, keys=keys, timeout_ms=timeout_ms))

    def leases(self, *, timeout_ms: float | None = None) -> list[int]:
        """The ids of all leases."""
        return self._call(lambda store: store.leases(timeout_ms=timeout_ms))


class BlockingWatch:
    """``Watch``, blocking: iterating over it waits for the next batch. A thread that waits is released by ``close`` in
    another one."""

    def __init__(self, watch: Watch, thread: LoopThread) -> None:
        self._watch = watch
        self._thread = thread

    def started(self) -> int:
        """Returns once the watch has begun: the revision whose changes, and all later ones, it tells of."""
        return self._thread.run(self._watch.started())

    def __iter__(self) -> Iterator[WatchBatch]:
        async def opened() -> AsyncIterator[WatchBatch]:
            return aiter(self._watch)

        return _each(self._thread, self._thread.run(opened()))

    def close(self) -> None:
        """Ends it at its node."""

        async def closed() -> None:
            self._watch.close()

        self._thread.run(closed())

    def __enter__(self) -> Self:
        self.started()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BlockingLease:
    """``Lease``, blocking: the client's thread keeps it alive, whatever this thread does."""

    def __init__(self, lease: Lease, thread: LoopThread) -> None:
        self.of = lease
        self._thread = thread

    def __enter__(self) -> Self:
        self._thread.run(self.of.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._thread.run(self.of.__aexit__(kind, value, traceback))

    @property
    def id(self) -> int:
        return self.of.id

    @property
    def ttl_s(self) -> int:
        return self.of.ttl_s

    @property
    def is_alive(self) -> bool:
        """Whether the store surely has not ended it yet, by this machine's clock."""
        return self.of.is_alive

    def check(self) -> None:
        """Raises LeaseLost unless it is alive."""
        self.of.check()

    def lost(self) -> None:
        """Returns when it is lost."""
        self._thread.run(self.of.lost())


class BlockingHeld(Generic[Held]):
    """``Lock`` or ``Leadership``, blocking."""

    def __init__(self, held: Held, thread: LoopThread) -> None:
        self._held = held
        self._thread = thread

    def __enter__(self) -> Self:
        self._thread.run(self._held.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._thread.run(self._held.__aexit__(kind, value, traceback))

    @property
    def key(self) -> bytes:
        return self._held.key

    @property
    def token(self) -> int:
        """The fencing token: higher than that of every holder before."""
        return self._held.token

    @property
    def is_held(self) -> bool:
        """Whether it is surely held, by this machine's clock."""
        return self._held.is_held

    @property
    def compare(self) -> Compare:
        """Holds in a transaction while it is held."""
        return self._held.compare

    def check(self) -> None:
        """Raises LeaseLost unless it is held."""
        self._held.check()

    def lost(self) -> None:
        """Returns when it is lost."""
        self._thread.run(self._held.lease.lost())


class BlockingLeadership(BlockingHeld[Leadership]):
    """``Leadership``, blocking."""

    def proclaim(self, value: Text) -> int:
        """Gives the leader's key another value."""
        return self._thread.run(self._held.proclaim(value))


class BlockingElection:
    """``Election``, blocking."""

    def __init__(self, election: Election, thread: LoopThread) -> None:
        self._election = election
        self._thread = thread

    def campaign(self, value: Text, *, wait_ms: float | None = None) -> BlockingLeadership:
        """For ``with``: waits until it is elected, and resigns at the end."""

        async def made() -> Leadership:
            return self._election.campaign(value, wait_ms=wait_ms)

        return BlockingLeadership(self._thread.run(made()), self._thread)

    def leader(self, *, timeout_ms: float | None = None) -> KeyValue | None:
        """The leader's key now; None: nobody leads."""
        return self._thread.run(self._election.leader(timeout_ms=timeout_ms))

    def observe(self) -> Iterator[KeyValue]:
        """The leader, and every later one."""

        async def opened() -> AsyncGenerator[KeyValue]:
            return self._election.observe()

        return _each(self._thread, self._thread.run(opened()))


def _each(thread: LoopThread, told: AsyncIterator[Told]) -> Iterator[Told]:
    try:
        while (found := thread.run(_next_of(told))) is not None:
            yield found
    finally:
        thread.hand_over(_close(told))


async def _next_of(told: AsyncIterator[Told]) -> Told | None:
    return await anext(told, None)


async def _close(told: Any) -> None:
    await told.aclose()

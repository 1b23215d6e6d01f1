"""The store does what the plainest one does, over all requests in any order: and over checkpoints, compaction and
cleaning at any point."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dledger.etcdpb import rpc_pb2 as pb
from dledger.store import commands
from dledger.store.machine import Store
from dledger.store.records import is_tombstone, key_of, mod_of, pair_of
from dledger.store.refusals import StoreCode, StoreRefused
from tests.unit.store import strategies
from tests.unit.store.reference import No, Reference


def restored(parts: list[bytes]) -> Store:
    async def given() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    store = Store()
    asyncio.run(store.restore(given()))
    return store


def outcome(of: Callable[..., Any], *args: Any) -> Any:
    """What it returns, or the name of what it is refused with."""
    try:
        return of(*args)
    except No as no:
        return no.args[0]
    except StoreRefused as refused:
        return refused.code.name


class StoreIsTheReference(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.reference = Reference()
        self.store = Store()
        self.untouched = Store()
        """Gets the same commands, and is neither cleaned nor restored."""
        self.views: list[tuple[Iterator[bytes], bytes]] = []
        """Of checkpoints that are being written, and the digests they are to have."""

    def submit(self, command: bytes) -> Any:
        """The answer of both stores, decoded."""

        def apply(store: Store) -> Any:
            answer = store.encode_answer(store.apply(command))
            return store.decode_answer(answer)

        digest = self.store.digest()
        first, second = outcome(apply, self.store), outcome(apply, self.untouched)
        assert first == second
        assert not isinstance(first, str) or self.store.digest() == digest, "what was refused left something"
        return first

    def same(self, request: commands.Request, of_reference: Callable[[Any], Any]) -> None:
        command = outcome(lambda: commands.command(request, is_system=True))
        if command == StoreCode.DUPLICATE_KEY.name:
            return  # judged by the request alone: the plain store knows nothing of that
        assert self.submit(command) == outcome(of_reference, request)

    @initialize()
    def grant_some(self) -> None:
        for lease_id in (1, 2):
            self.grant(pb.LeaseGrantRequest(ID=lease_id, TTL=60))

    @rule(requests=st.lists(strategies.simple_puts, min_size=1, max_size=6))
    def put_some(self, requests: list[pb.PutRequest]) -> None:
        for request in requests:
            self.same(request, self.reference.put)

    @rule(request=strategies.puts)
    def put(self, request: pb.PutRequest) -> None:
        self.same(request, self.reference.put)

    @rule(request=strategies.deletes)
    def delete(self, request: pb.DeleteRangeRequest) -> None:
        self.same(request, self.reference.delete_range)

    @rule(request=strategies.txns())
    def txn(self, request: pb.TxnRequest) -> None:
        self.same(request, self.reference.txn)

    @rule(back=st.integers(-1, 5))
    def compact(self, back: int) -> None:
        self.same(pb.CompactionRequest(revision=self.reference.revision - back), self.reference.compact)

    @rule(request=strategies.grants)
    def grant(self, request: pb.LeaseGrantRequest) -> None:
        answer = self.submit(commands.command(request))
        chosen = answer.ID if isinstance(answer, pb.LeaseGrantResponse) else 0
        assert answer == outcome(self.reference.grant, request, chosen)

    @rule(lease_id=st.sampled_from([*strategies.LEASES, 9]))
    def revoke(self, lease_id: int) -> None:
        self.same(pb.LeaseRevokeRequest(ID=lease_id), lambda request: self.reference.revoke(request.ID))

    @rule(named=st.lists(st.tuples(st.sampled_from(strategies.LEASES), st.integers(1, 12)), max_size=3))
    def expire(self, named: list[tuple[int, int]]) -> None:
        answer = self.submit(commands.expire_command([commands.Expired(*each) for each in named]))
        assert [(each.id, each.serial) for each in answer.leases] == self.reference.expire(named)
        assert answer.revision == self.reference.revision

    @rule(most=st.sampled_from([1, 3, 100]))
    def clean(self, most: int) -> None:
        self.store.clean(most)

    @rule()
    def begin_checkpoint(self) -> None:
        if not self.views:
            self.views.append((self.store.checkpoint(), self.store.digest()))

    @rule()
    def end_checkpoint(self) -> None:
        if self.views:
            view, digest = self.views.pop(0)
            parts = list(view)
            folded = b""
            for part in parts:
                folded = self.store.fold(folded, part)
            assert folded == digest
            assert restored(parts).digest() == digest

    @rule()
    def restore(self) -> None:
        self.store = restored(list(self.store.checkpoint()))

    @rule(request=strategies.ranges)
    def range(self, request: pb.RangeRequest) -> None:
        assert outcome(self.store.range, request) == outcome(self.reference.range, request)

    @invariant()
    def every_revision_reads_the_same(self) -> None:
        for revision in range(max(self.reference.compacted, 1), self.reference.revision + 1):
            request = pb.RangeRequest(key=b"\0", range_end=b"\0", revision=revision)
            assert self.store.range(request) == self.reference.range(request)

    @invariant()
    def changes_are_the_same_from_the_compacted_revision_on(self) -> None:
        changes = self.store.pairs.changes
        first = max(self.reference.compacted, 1)
        kept = list(changes.between(changes.find(first), changes.end))
        expected = self.reference.events(b"\0", b"\0", first)
        assert [(mod_of(each), is_tombstone(each), pair_of(each)) for each in kept] == expected

    @invariant()
    def a_key_is_in_the_lease_that_its_record_names_and_in_no_other(self) -> None:
        by_lease = {lease.id: sorted(lease.keys) for lease in self.store.leases}
        assert by_lease == {each: self.reference.keys_of(each) for each in self.reference.leases}

    @invariant()
    def the_digest_is_the_same_however_the_state_was_come_to(self) -> None:
        assert self.store.digest() == self.untouched.digest()
        assert self.store.hash_kv(0) == self.untouched.hash_kv(0)
        if self.reference.compacted < self.reference.revision - 1:
            earlier = self.reference.revision - 1
            assert self.store.hash_kv(earlier) == self.untouched.hash_kv(earlier)

    @invariant()
    def memory_holds_what_it_says(self) -> None:
        pairs = self.store.pairs
        assert len(pairs) == len(self.reference.contents[self.reference.revision])
        assert {key_of(each) for each in pairs._live.values()} == set(pairs._order) == set(pairs._live)
        assert set(pairs._dead_order) == set(pairs._dead)


TestStoreIsTheReference = StoreIsTheReference.TestCase
TestStoreIsTheReference.settings = settings(
    max_examples=80, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)

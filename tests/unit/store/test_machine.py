"""The store as a state machine, beside what etcd's semantics say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dledger.common.errors import Code, DLedgerError
from dledger.etcdpb import rpc_pb2 as pb
from dledger.statemachine.api import MAX_PART_BYTES
from dledger.store import commands, quota
from dledger.store.commands import Expired, command, expire_command, found_command
from dledger.store.machine import Store
from dledger.store.refusals import StoreCode, StoreRefused


def do(store: Store, request: commands.Request, *, is_system: bool = False) -> Any:
    return run(store, command(request, is_system=is_system))


def run(store: Store, of: bytes) -> Any:
    return store.decode_answer(store.encode_answer(store.apply(of)))


def refused(store: Store, request: commands.Request, *, is_system: bool = False) -> StoreCode:
    """And the state is as it was."""
    digest = store.digest()
    with pytest.raises(StoreRefused) as refusal:
        do(store, request, is_system=is_system)
    assert store.digest() == digest
    return refusal.value.code


def put(store: Store, key: bytes, value: bytes = b"v", lease: int = 0) -> int:
    """The revision."""
    revision: int = do(store, pb.PutRequest(key=key, value=value, lease=lease), is_system=True).header.revision
    return revision


def grant(store: Store, lease_id: int = 0, ttl_s: int = 60) -> pb.LeaseGrantResponse:
    answer: pb.LeaseGrantResponse = do(store, pb.LeaseGrantRequest(ID=lease_id, TTL=ttl_s))
    return answer


def restored(parts: list[bytes]) -> Store:
    async def given() -> AsyncIterator[bytes]:
        for part in parts:
            yield part

    store = Store()
    asyncio.run(store.restore(given()))
    return store


# Answers and refusals ---------------------------------------------------------------------------------------------


def test_an_empty_store_is_at_revision_1() -> None:
    assert Store().range(pb.RangeRequest(key=b"a")).header.revision == 1


def test_a_refusal_is_the_same_after_it_was_kept() -> None:
    store = Store()
    kept = store.encode_refusal(StoreRefused(StoreCode.LEASE_NOT_FOUND))
    refusal = store.decode_refusal(kept)
    assert refusal.code is StoreCode.LEASE_NOT_FOUND
    assert str(refusal) == "etcdserver: requested lease not found"


def test_a_command_of_an_unknown_kind_stops_the_state_machine() -> None:
    with pytest.raises(DLedgerError) as failure:
        Store().apply(b"")
    assert failure.value.code is Code.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("last", "code"),
    [
        (pb.RequestOp(request_put=pb.PutRequest(key=b"z", lease=99)), StoreCode.LEASE_NOT_FOUND),
        (pb.RequestOp(request_put=pb.PutRequest(key=b"z", ignore_value=True)), StoreCode.KEY_NOT_FOUND),
        (pb.RequestOp(request_range=pb.RangeRequest(key=b"a", revision=4)), StoreCode.FUTURE_REVISION),
        (pb.RequestOp(request_range=pb.RangeRequest(key=b"a", revision=2)), StoreCode.COMPACTED),
    ],
)
def test_a_transaction_whose_last_operation_fails_leaves_nothing(last: pb.RequestOp, code: StoreCode) -> None:
    store = Store()
    put(store, b"a")
    put(store, b"a")
    do(store, pb.CompactionRequest(revision=3))
    first = pb.RequestOp(request_put=pb.PutRequest(key=b"b"))
    assert refused(store, pb.TxnRequest(success=[first, last])) is code
    inner = pb.RequestOp(request_txn=pb.TxnRequest(success=[last]))
    assert refused(store, pb.TxnRequest(success=[first, inner])) is code


# Leases -----------------------------------------------------------------------------------------------------------


def test_an_id_that_the_store_chooses_is_the_same_on_every_node_and_free() -> None:
    one, two = Store(), Store()
    first = [grant(store).ID for store in (one, two)]
    assert first[0] == first[1] > 0
    assert first[0] != grant(one).ID


def test_an_expiry_of_an_earlier_grant_does_nothing_to_a_later_one() -> None:
    store = Store()
    grant(store, 7)
    do(store, pb.LeaseRevokeRequest(ID=7))
    grant(store, 7)
    put(store, b"k", lease=7)
    assert not run(store, expire_command([Expired(7, 1)])).leases
    assert store.pairs.get(b"k") is not None
    assert run(store, expire_command([Expired(7, 2)])).leases
    assert store.pairs.get(b"k") is None


def test_the_keys_of_a_lease_go_in_their_order_at_one_revision() -> None:
    store = Store()
    grant(store, 7)
    for key in (b"c", b"a", b"b"):
        put(store, key, lease=7)
    before = store.pairs.changes.end
    revision = do(store, pb.LeaseRevokeRequest(ID=7)).header.revision
    changes = [store.pairs.changes[number] for number in range(before, store.pairs.changes.end)]
    assert [(each[40:], revision) for each in changes] == [(key, revision) for key in (b"a", b"b", b"c")]


def test_a_key_that_changed_its_lease_before_a_checkpoint_stays_when_the_first_one_ends() -> None:
    store = Store()
    for lease_id in (1, 2):
        grant(store, lease_id)
        put(store, b"k", lease=lease_id)
    again = restored(list(store.checkpoint()))
    do(again, pb.LeaseRevokeRequest(ID=1))
    assert again.pairs.get(b"k") is not None
    do(again, pb.LeaseRevokeRequest(ID=2))
    assert again.pairs.get(b"k") is None


def test_each_lease_that_expires_has_a_revision_of_its_own() -> None:
    store = Store()
    for lease_id in (1, 2):
        grant(store, lease_id)
        put(store, b"%d" % lease_id, lease=lease_id)
    assert run(store, expire_command([Expired(1, 1), Expired(2, 2)])).revision == store.pairs.revision == 5


def test_clients_from_outside_do_not_end_a_lease_of_the_systems_keys() -> None:
    store = Store()
    grant(store, 7)
    put(store, b"/dledger/bookies/1", lease=7)
    assert refused(store, pb.LeaseRevokeRequest(ID=7)) is StoreCode.PERMISSION_DENIED
    do(store, pb.LeaseRevokeRequest(ID=7), is_system=True)


# Space ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def full() -> Store:
    store = Store()
    put(store, b"a")
    do(store, pb.AlarmRequest(action=pb.AlarmRequest.ACTIVATE, memberID=5, alarm=pb.NOSPACE))
    return store


PUT_OP = pb.RequestOp(request_put=pb.PutRequest(key=b"b"))


@pytest.mark.parametrize(
    "request_",
    [
        pb.PutRequest(key=b"b"),
        pb.PutRequest(key=b"b", lease=99),
        pb.LeaseGrantRequest(TTL=5),
        pb.TxnRequest(failure=[PUT_OP]),
        pb.TxnRequest(success=[pb.RequestOp(request_txn=pb.TxnRequest(success=[PUT_OP]))]),
    ],
)
def test_without_space_what_adds_to_the_store_is_refused(full: Store, request_: commands.Request) -> None:
    assert refused(full, request_) is StoreCode.NO_SPACE


@pytest.mark.parametrize(
    "request_",
    [
        pb.DeleteRangeRequest(key=b"a"),
        pb.CompactionRequest(revision=2),
        pb.TxnRequest(success=[pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=b"a"))]),
        pb.AlarmRequest(action=pb.AlarmRequest.GET),
    ],
)
def test_without_space_what_frees_some_is_carried_out(full: Store, request_: commands.Request) -> None:
    do(full, request_)


def test_without_space_the_systems_own_writes_go_on(full: Store) -> None:
    put(full, b"/dledger/x")


def test_an_alarm_ends_when_it_is_taken_back_for_its_member(full: Store) -> None:
    other = pb.AlarmRequest(action=pb.AlarmRequest.DEACTIVATE, memberID=6, alarm=pb.NOSPACE)
    assert not do(full, other).alarms
    assert refused(full, pb.PutRequest(key=b"b")) is StoreCode.NO_SPACE
    own = pb.AlarmRequest(action=pb.AlarmRequest.DEACTIVATE, memberID=5, alarm=pb.NOSPACE)
    assert [each.memberID for each in do(full, own).alarms] == [5]
    do(full, pb.PutRequest(key=b"b"))


def test_alarms_are_in_the_checkpoint(full: Store) -> None:
    assert refused(restored(list(full.checkpoint())), pb.PutRequest(key=b"b")) is StoreCode.NO_SPACE


def test_a_corrupt_cluster_refuses_all_but_alarms() -> None:
    store = Store()
    do(store, pb.AlarmRequest(action=pb.AlarmRequest.ACTIVATE, memberID=5, alarm=pb.CORRUPT))
    assert refused(store, pb.PutRequest(key=b"b")) is StoreCode.CORRUPT
    assert refused(store, pb.DeleteRangeRequest(key=b"b")) is StoreCode.CORRUPT
    with pytest.raises(StoreRefused):
        store.range(pb.RangeRequest(key=b"b"))


def test_a_transaction_costs_what_its_dearer_branch_does() -> None:
    dear = pb.RequestOp(request_put=pb.PutRequest(key=b"k", value=bytes(1_000)))
    assert quota.cost_of_txn(pb.TxnRequest(success=[PUT_OP], failure=[dear])) == 256 + 1_001
    assert quota.cost_of_txn(pb.TxnRequest()) == 0


def test_a_full_store_has_room_for_what_costs_nothing() -> None:
    assert quota.has_room(100, 0, 10)
    assert not quota.has_room(9, 1, 10)
    assert quota.has_room(10**12, 1, -1)


def test_the_size_goes_back_to_where_it_was_when_all_is_deleted_compacted_and_cleaned() -> None:
    store = Store()
    for at in range(50):
        put(store, b"k%d" % (at % 7))
    do(store, pb.DeleteRangeRequest(key=b"k", range_end=b"l"))
    put(store, b"last")
    do(store, pb.CompactionRequest(revision=store.pairs.revision))
    while store.clean(3):
        pass
    alone = Store()
    put(alone, b"last")
    assert store.pairs.size_bytes == alone.pairs.size_bytes


# Compaction -------------------------------------------------------------------------------------------------------


def test_cleaning_goes_in_steps_that_are_as_small_as_asked_for() -> None:
    store = Store()
    for at in range(100):
        put(store, b"k", b"%d" % at)
    do(store, pb.CompactionRequest(revision=store.pairs.revision))
    assert store.clean(10)
    assert store.pairs.changes.first <= 20


def test_compaction_takes_no_longer_for_a_longer_history() -> None:
    """It changes a few numbers: what it leaves behind is cleaned afterwards."""
    store = Store()
    for at in range(100):
        put(store, b"k", b"%d" % at)
    size_bytes = store.pairs.size_bytes
    do(store, pb.CompactionRequest(revision=store.pairs.revision))
    assert store.pairs.size_bytes == size_bytes


def test_the_compacted_revision_reads_as_before_after_all_is_cleaned() -> None:
    store = Store()
    put(store, b"deleted", b"old")
    put(store, b"overwritten", b"older")
    put(store, b"overwritten", b"old")
    compacted = put(store, b"same")
    put(store, b"overwritten", b"new")
    put(store, b"new")
    do(store, pb.DeleteRangeRequest(key=b"deleted"))
    do(store, pb.CompactionRequest(revision=compacted))
    while store.clean(100):
        pass
    then = store.range(pb.RangeRequest(key=b"\0", range_end=b"\0", revision=compacted))
    assert [(kv.key, kv.value) for kv in then.kvs] == [(b"deleted", b"old"), (b"overwritten", b"old"), (b"same", b"v")]
    with pytest.raises(StoreRefused):
        store.range(pb.RangeRequest(key=b"\0", revision=compacted - 1))


def test_a_deletion_at_the_compacted_revision_can_still_be_watched() -> None:
    store = Store()
    put(store, b"k")
    revision = do(store, pb.DeleteRangeRequest(key=b"k")).header.revision
    do(store, pb.CompactionRequest(revision=revision))
    store.clean(100)
    changes = store.pairs.changes
    assert changes.end - changes.find(revision) == 1


def test_nodes_that_are_cleaned_differently_have_the_same_hash_of_every_revision() -> None:
    one, two = Store(), Store()
    for store in (one, two):
        for at in range(20):
            put(store, b"k%d" % (at % 3), b"%d" % at)
        do(store, pb.CompactionRequest(revision=10))
    one.clean(1_000)
    for revision in range(10, 22):
        assert one.hash_kv(revision) == two.hash_kv(revision)
    with pytest.raises(StoreRefused):
        one.hash_kv(9)


# Founding ---------------------------------------------------------------------------------------------------------


def test_a_store_made_from_a_backup_goes_on_above_every_revision_of_it() -> None:
    store = Store()
    assert run(store, found_command(b"uuid", 1 << 32)).revision == 1 << 32
    assert put(store, b"k") == (1 << 32) + 1
    assert refused(store, pb.CompactionRequest(revision=1 << 32)) is StoreCode.COMPACTED
    again = restored(list(store.checkpoint()))
    assert (again.uuid, again.digest()) == (b"uuid", store.digest())


def test_a_store_that_has_keys_keeps_its_identity() -> None:
    store = Store()
    put(store, b"k")
    with pytest.raises(StoreRefused) as refusal:
        store.apply(found_command(b"uuid"))
    assert refusal.value.code is StoreCode.NOT_EMPTY


# Checkpoints ------------------------------------------------------------------------------------------------------


def test_parts_are_no_larger_than_a_record_may_be_even_for_the_largest_values() -> None:
    store = Store()
    put(store, b"large", bytes(1_500_000))
    put(store, b"small")
    parts, digest = list(store.checkpoint()), b""
    assert max(map(len, parts)) <= MAX_PART_BYTES
    for part in parts:
        digest = store.fold(digest, part)
    assert digest == store.digest() == restored(parts).digest()


def test_a_value_that_flipped_in_memory_is_noticed_when_a_checkpoint_is_written() -> None:
    store = Store()
    put(store, b"k", b"good")
    store.pairs._live[b"k"] = store.pairs._live[b"k"][:-4] + b"evil"
    put(store, b"k2")
    do(store, pb.CompactionRequest(revision=3))
    digest = b""
    for part in store.checkpoint():
        digest = store.fold(digest, part)
    assert digest != store.digest()


def test_a_checkpoint_compacted_where_a_key_was_put_and_deleted_at_once_has_the_stores_digest() -> None:
    """etcd lets a put of one inner transaction and a delete of a later one pass."""
    put_op = pb.RequestOp(request_put=pb.PutRequest(key=b"k"))
    delete_op = pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=b"k"))
    inner = [pb.RequestOp(request_txn=pb.TxnRequest(success=[op])) for op in (put_op, delete_op)]
    for is_there_before in (False, True):
        store = Store()
        if is_there_before:
            put(store, b"k")
        put(store, b"other")
        do(store, pb.TxnRequest(success=inner))
        do(store, pb.CompactionRequest(revision=store.pairs.revision))
        digest = b""
        for part in store.checkpoint():
            digest = store.fold(digest, part)
        assert digest == store.digest()


def test_a_view_that_nobody_reads_any_more_does_not_hold_up_cleaning() -> None:
    store = Store()
    put(store, b"k")
    put(store, b"k")
    do(store, pb.CompactionRequest(revision=3))
    view = store.checkpoint()
    next(view)
    store.clean(100)
    assert store.pairs.changes.first == 0
    del view
    store.clean(100)
    assert store.pairs.changes.first == 1


def test_a_checkpoint_that_ends_elsewhere_than_it_says_is_not_taken() -> None:
    store = Store()
    put(store, b"k", bytes(MAX_PART_BYTES))
    parts = list(store.checkpoint())
    with pytest.raises(DLedgerError) as failure:
        restored(parts[:1])
    assert failure.value.code is Code.CORRUPT_LOG


def test_a_part_of_a_large_store_that_was_never_compacted_takes_no_longer_than_a_part() -> None:
    """No key has a record as old as the compacted revision: the search for one goes over all keys."""
    store = Store()
    for number in range(20_000):
        store.apply(command(pb.PutRequest(key=b"%d" % number)))
    view = store.checkpoint()
    pauses = 0
    while not next(view):
        pauses += 1
    assert pauses >= 19

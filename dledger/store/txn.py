"""Puts, deletes and transactions, as etcd carries them out.

A transaction is judged first: all its compares, those of the transactions in it too, see the store as it was before. So
the branches that will be taken are known, and whatever could fail in them is looked at before anything changes. Then
its operations run in order, and each sees what those before it did. All changes have one revision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dledger.etcdpb import rpc_pb2 as pb
from dledger.store.keys import key_range
from dledger.store.leases import Leases
from dledger.store.mvcc import Mvcc
from dledger.store.reads import read_range
from dledger.store.records import Record, add_pairs, lease_of, pair_of, tombstone, unpack, value_of
from dledger.store.refusals import StoreCode, StoreRefused

_NOTHING = tombstone(b"", 0, 0)


class Data(NamedTuple):
    """What transactions work on."""

    pairs: Mvcc
    leases: Leases


# Single operations ------------------------------------------------------------------------------------------------


def check_put(data: Data, request: pb.PutRequest) -> None:
    """Raises LEASE_NOT_FOUND and KEY_NOT_FOUND."""
    data.leases.check(request.lease)
    if (request.ignore_value or request.ignore_lease) and data.pairs.get(request.key) is None:
        raise StoreRefused(StoreCode.KEY_NOT_FOUND)


def put(data: Data, request: pb.PutRequest) -> Record | None:
    """What it takes the place of. It was checked."""
    key, lease = request.key, request.lease
    pairs, leases = data
    if request.ignore_value or request.ignore_lease:
        known = pairs.get(key)
        # Only a delete in the same transaction, which etcd does not look for, takes the key away after the check.
        if known is None:
            known = _NOTHING
        value = value_of(known) if request.ignore_value else request.value
        lease = lease_of(known) if request.ignore_lease else lease
    else:
        value = request.value
    before = pairs.put(key, value, lease)
    lease_before = lease_of(before) if before is not None else 0
    if lease_before != lease:
        leases.detach(lease_before, key)
        leases.attach(lease, key)
    return before


def delete(data: Data, keys: Sequence[bytes]) -> list[Record]:
    """What was there. All keys exist."""
    deleted = []
    for key in keys:
        before = data.pairs.delete(key)
        data.leases.detach(lease_of(before), key)
        deleted.append(before)
    return deleted


def _answer_put(data: Data, request: pb.PutRequest, answer: pb.PutResponse) -> None:
    before = put(data, request)
    if request.prev_kv and before is not None:
        answer.prev_kv.CopyFrom(pair_of(before))
    answer.header.revision = data.pairs.read_revision


def _answer_delete(data: Data, request: pb.DeleteRangeRequest, answer: pb.DeleteRangeResponse) -> None:
    of = key_range(request.key, request.range_end)
    deleted = [] if of.is_empty else delete(data, list(data.pairs.keys(of)))
    answer.deleted = len(deleted)
    if request.prev_kv:
        add_pairs(answer.prev_kvs, deleted, keys_only=False, has_lease=True)
    answer.header.revision = data.pairs.read_revision


def delete_range(data: Data, request: pb.DeleteRangeRequest) -> pb.DeleteRangeResponse:
    answer = pb.DeleteRangeResponse()
    data.pairs.begin()
    _answer_delete(data, request, answer)
    data.pairs.end()
    return answer


# Transactions -----------------------------------------------------------------------------------------------------


class Branch(NamedTuple):
    """What is done of a transaction."""

    succeeded: bool
    ops: Sequence[pb.RequestOp]
    inner: Sequence[Branch]
    """Of the transactions among ``ops``, in their order."""


def txn(data: Data, request: pb.TxnRequest) -> pb.TxnResponse:
    """Its shape was checked (``checks.check_txn``). Raises LEASE_NOT_FOUND, KEY_NOT_FOUND, COMPACTED and
    FUTURE_REVISION, and changes nothing then."""
    pairs, answer = data.pairs, pb.TxnResponse()
    branch = _choose(pairs, request)
    _check(data, branch)
    pairs.begin()
    _carry_out(data, branch, answer)
    answer.header.revision = pairs.read_revision
    pairs.end()
    return answer


def is_read_only(request: pb.TxnRequest) -> bool:
    """Whether it has nothing but reads: then it need not be a command. One with transactions in it counts as none."""
    return all(op.HasField("request_range") for ops in (request.success, request.failure) for op in ops)


def is_serializable(request: pb.TxnRequest) -> bool:
    """Whether it has nothing but reads that may be stale."""
    return all(
        op.HasField("request_range") and op.request_range.serializable
        for ops in (request.success, request.failure)
        for op in ops
    )


def newest_revision(request: pb.TxnRequest) -> int:
    """Of those at which it reads; 0: it has none."""
    return max((op.request_range.revision for ops in (request.success, request.failure) for op in ops), default=0)


def _choose(pairs: Mvcc, request: pb.TxnRequest) -> Branch:
    succeeded = all(_holds(pairs, each) for each in request.compare)
    ops = request.success if succeeded else request.failure
    return Branch(succeeded, ops, [_choose(pairs, op.request_txn) for op in ops if op.HasField("request_txn")])


def _check(data: Data, branch: Branch) -> None:
    inner = iter(branch.inner)
    for op in branch.ops:
        match op.WhichOneof("request"):
            case "request_range":
                _check_revision(data.pairs, op.request_range.revision)
            case "request_put":
                check_put(data, op.request_put)
            case "request_txn":
                _check(data, next(inner))


def _check_revision(pairs: Mvcc, revision: int) -> None:
    """Unlike a read by itself, one in a transaction must not name a revision below 0 once there was a compaction."""
    if revision > pairs.revision:
        raise StoreRefused(StoreCode.FUTURE_REVISION)
    if revision and revision < pairs.compact_revision:
        raise StoreRefused(StoreCode.COMPACTED)


def _carry_out(data: Data, branch: Branch, answer: pb.TxnResponse) -> None:
    answer.succeeded = branch.succeeded
    answer.header.SetInParent()
    inner = iter(branch.inner)
    for op in branch.ops:
        of_op = answer.responses.add()
        match op.WhichOneof("request"):
            case "request_range":
                read_range(data.pairs, op.request_range, of_op.response_range)
            case "request_put":
                _answer_put(data, op.request_put, of_op.response_put)
            case "request_delete_range":
                _answer_delete(data, op.request_delete_range, of_op.response_delete_range)
            case "request_txn":
                _carry_out(data, next(inner), of_op.response_txn)


# Compares ---------------------------------------------------------------------------------------------------------


def _holds(pairs: Mvcc, compare: pb.Compare) -> bool:
    """Of a range: for all its keys. An absent key compares as 0, and has no value to compare."""
    of = key_range(compare.key, compare.range_end)
    found = iter(()) if of.is_empty else pairs.records(of)
    first = next(found, None)
    if first is None:
        return compare.target != pb.Compare.VALUE and _holds_for(compare, _NOTHING)
    return _holds_for(compare, first) and all(_holds_for(compare, each) for each in found)


def _holds_for(compare: pb.Compare, of: Record) -> bool:
    create, mod, version, lease, _, _ = unpack(of)
    match compare.target:
        case pb.Compare.VALUE:
            return _is(compare.result, value_of(of), compare.value)
        case pb.Compare.CREATE:
            return _is(compare.result, create, compare.create_revision)
        case pb.Compare.MOD:
            return _is(compare.result, mod, compare.mod_revision)
        case pb.Compare.VERSION:
            return _is(compare.result, version, compare.version)
        case pb.Compare.LEASE:
            return _is(compare.result, lease, compare.lease)
    return _is(compare.result, 0, 0)


def _is(result: int, this: Any, that: Any) -> bool:
    match result:
        case pb.Compare.EQUAL:
            return bool(this == that)
        case pb.Compare.NOT_EQUAL:
            return bool(this != that)
        case pb.Compare.GREATER:
            return bool(this > that)
        case pb.Compare.LESS:
            return bool(this < that)
    return True  # as etcd takes a result that it does not know

"""Transactions: comparisons, and operations for the case that all hold and for the other. One revision for all of it.

::

    await store.txn(
        [Compare.created(lock.key, "==", lock.token)],     # only while the lock is ours
        [Op.put("balance", "17")],
    )
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from dledger.client.arguments import check_amount, check_flag
from dledger.client.store.arguments import MAX_REVISION, lease_id
from dledger.client.store.keys import KeyRange, Text, as_bytes, as_key, key_or_prefix, range_of
from dledger.client.store.results import Deleted, KeyValue, Pairs, PutDone, TxnDone, TxnResponse
from dledger.common.errors import InvalidRequest
from dledger.etcdpb import rpc_pb2 as rpc

if TYPE_CHECKING:
    from dledger.client.store.arguments import LeaseLike

Part = TypeVar("Part")
Is = Literal["==", "!=", "<", ">"]

RESULTS = {
    "==": rpc.Compare.EQUAL,
    "!=": rpc.Compare.NOT_EQUAL,
    "<": rpc.Compare.LESS,
    ">": rpc.Compare.GREATER,
}
MAX_OPS = 128
"""Comparisons, or operations of a branch."""


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison of one key as it is with what is expected. A key that is not there has version, revisions and lease
    0, and no comparison of its value holds."""

    wire: rpc.Compare

    @staticmethod
    def value(key: Text, sign: Is, value: Text) -> Compare:
        """Of what it holds, byte by byte."""
        expected = as_bytes("value", value)
        return Compare(rpc.Compare(target=rpc.Compare.VALUE, key=as_key(key), result=_result(sign), value=expected))

    @staticmethod
    def version(key: Text, sign: Is, version: int) -> Compare:
        """Of the number of puts since it was made."""
        check_amount("version", version)
        return Compare(rpc.Compare(target=rpc.Compare.VERSION, key=as_key(key), result=_result(sign), version=version))

    @staticmethod
    def created(key: Text, sign: Is, revision: int) -> Compare:
        """Of the revision at which it was made: a lock's or an election's fencing token."""
        check_amount("revision", revision, most=MAX_REVISION)
        wire = rpc.Compare(target=rpc.Compare.CREATE, key=as_key(key), result=_result(sign), create_revision=revision)
        return Compare(wire)

    @staticmethod
    def modified(key: Text, sign: Is, revision: int) -> Compare:
        """Of the revision of its last put: unchanged since it was read, for example."""
        check_amount("revision", revision, most=MAX_REVISION)
        return Compare(
            rpc.Compare(target=rpc.Compare.MOD, key=as_key(key), result=_result(sign), mod_revision=revision)
        )

    @staticmethod
    def lease(key: Text, sign: Is, lease: LeaseLike) -> Compare:
        """Of the lease that it goes with; 0: none."""
        return Compare(
            rpc.Compare(target=rpc.Compare.LEASE, key=as_key(key), result=_result(sign), lease=lease_id(lease))
        )

    @staticmethod
    def exists(key: Text) -> Compare:
        return Compare.created(key, ">", 0)

    @staticmethod
    def absent(key: Text) -> Compare:
        return Compare.created(key, "==", 0)


@dataclass(frozen=True, slots=True)
class Op:
    """An operation of a transaction. Each sees what those before it did."""

    wire: rpc.RequestOp

    @staticmethod
    def put(key: Text, value: Text, *, lease: LeaseLike = 0) -> Op:
        """Answers ``PutDone``."""
        return Op(rpc.RequestOp(request_put=put_request(key, value, lease)))

    @staticmethod
    def get(key: Text) -> Op:
        """Answers ``Pairs``: with the key, or empty."""
        return Op(rpc.RequestOp(request_range=rpc.RangeRequest(key=as_key(key))))

    @staticmethod
    def range(
        *,
        prefix: Text | None = None,
        start: Text | None = None,
        end: Text | None = None,
        limit: int = 0,
        keys_only: bool = False,
    ) -> Op:
        """Answers ``Pairs``."""
        of = range_of(prefix, start, end)
        check_amount("limit", limit)
        check_flag("keys_only", keys_only)
        request = rpc.RangeRequest(key=of.key, range_end=of.end, limit=limit, keys_only=keys_only)
        return Op(rpc.RequestOp(request_range=request))

    @staticmethod
    def delete(key: Text | None = None, *, prefix: Text | None = None) -> Op:
        """Answers ``Deleted``."""
        return Op(rpc.RequestOp(request_delete_range=delete_request(key_or_prefix(key, prefix))))

    @staticmethod
    def txn(compare: Iterable[Compare], success: Iterable[Op] = (), failure: Iterable[Op] = ()) -> Op:
        """A transaction within one. Answers ``TxnDone``."""
        return Op(rpc.RequestOp(request_txn=txn_request(compare, success, failure)))


def _result(sign: str) -> rpc.Compare.CompareResult.ValueType:
    if sign not in RESULTS:
        raise InvalidRequest(f"{sign!r} compares nothing: give one of {', '.join(RESULTS)}")
    return RESULTS[sign]


# Requests ---------------------------------------------------------------------------------------------------------


def put_request(key: Text, value: Text, lease: LeaseLike) -> rpc.PutRequest:
    """Raises UNEXPECTED_ARGUMENT, as all of these do."""
    return rpc.PutRequest(key=as_key(key), value=as_bytes("value", value), lease=lease_id(lease))


def delete_request(of: KeyRange) -> rpc.DeleteRangeRequest:
    return rpc.DeleteRangeRequest(key=of.key, range_end=of.end)


def txn_request(compare: Iterable[Compare], success: Iterable[Op], failure: Iterable[Op]) -> rpc.TxnRequest:
    return rpc.TxnRequest(
        compare=[each.wire for each in _all("compare", compare, Compare)],
        success=[each.wire for each in _all("success", success, Op)],
        failure=[each.wire for each in _all("failure", failure, Op)],
    )


def _all(name: str, given: Iterable[Part], kind: type[Part]) -> Sequence[Part]:
    listed = list(given) if isinstance(given, Iterable) else [given]
    wrong = [each for each in listed if not isinstance(each, kind)]
    if wrong or not isinstance(given, Iterable):
        raise InvalidRequest(f"{name} has {(wrong or listed)[0]!r}: give a list of {kind.__name__}")
    if len(listed) > MAX_OPS:
        raise InvalidRequest(f"{name} has {len(listed)} parts: the store takes {MAX_OPS} at most")
    return listed


# Answers ----------------------------------------------------------------------------------------------------------


def txn_done(answer: rpc.TxnResponse, revision: int = 0) -> TxnDone:
    """``revision``: of the whole transaction, for one within another."""
    at = answer.header.revision or revision
    return TxnDone(answer.succeeded, at, tuple(_response(each, at) for each in answer.responses))


def _response(op: rpc.ResponseOp, revision: int) -> TxnResponse:
    match op.WhichOneof("response"):
        case "response_put":
            return PutDone(op.response_put.header.revision or revision)
        case "response_range":
            return pairs_of(op.response_range, revision)
        case "response_delete_range":
            return Deleted(op.response_delete_range.deleted, op.response_delete_range.header.revision or revision)
        case "response_txn":
            return txn_done(op.response_txn, revision)
        case _:
            raise AssertionError(f"the store answers an operation that nobody asked for: {op}")


def pairs_of(answer: rpc.RangeResponse, revision: int = 0) -> Pairs:
    pairs = [KeyValue.from_wire(each) for each in answer.kvs]
    return Pairs(pairs, answer.header.revision or revision, answer.count)

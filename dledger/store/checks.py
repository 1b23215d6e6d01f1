"""What a request must be like, whatever the store has: judged by the request alone, as etcd's API does it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from dledger.etcdpb import rpc_pb2 as pb
from dledger.store.refusals import StoreCode, StoreRefused

MAX_REQUEST_BYTES = 3 << 19
"""1.5 MiB, as etcd's ``--max-request-bytes``."""
MAX_TXN_OPS = 128
"""Compares, or operations of a branch; those of a transaction in a branch count with it."""
MAX_TXN_DEPTH = 32
"""Transactions in transactions: more than protobuf reads cannot become a command."""
_SORT_ORDERS = frozenset(pb.RangeRequest.SortOrder.values())
_SORT_TARGETS = frozenset(pb.RangeRequest.SortTarget.values())


def check_size(size_bytes: int) -> None:
    """Raises REQUEST_TOO_LARGE."""
    if size_bytes > MAX_REQUEST_BYTES:
        raise StoreRefused(StoreCode.REQUEST_TOO_LARGE)


def check_range(request: pb.RangeRequest) -> None:
    """Raises EMPTY_KEY or INVALID_SORT_OPTION."""
    if not request.key:
        raise StoreRefused(StoreCode.EMPTY_KEY)
    if request.sort_order not in _SORT_ORDERS or request.sort_target not in _SORT_TARGETS:
        raise StoreRefused(StoreCode.INVALID_SORT_OPTION)


def check_put(request: pb.PutRequest) -> None:
    """Raises EMPTY_KEY, VALUE_PROVIDED or LEASE_PROVIDED."""
    if not request.key:
        raise StoreRefused(StoreCode.EMPTY_KEY)
    if request.ignore_value and request.value:
        raise StoreRefused(StoreCode.VALUE_PROVIDED)
    if request.ignore_lease and request.lease:
        raise StoreRefused(StoreCode.LEASE_PROVIDED)


def check_delete_range(request: pb.DeleteRangeRequest) -> None:
    """Raises EMPTY_KEY."""
    if not request.key:
        raise StoreRefused(StoreCode.EMPTY_KEY)


def check_txn(request: pb.TxnRequest) -> None:
    """Raises what the checks of its operations do, TOO_MANY_OPS, KEY_NOT_FOUND for an operation that is none, and
    DUPLICATE_KEY where a branch would put a key twice, or put and delete it."""
    _check_ops(request, MAX_TXN_OPS, MAX_TXN_DEPTH)
    for ops in (request.success, request.failure):
        if len(ops) > 1 or (ops and ops[0].HasField("request_txn")):  # one alone meets no other
            _touched(ops)


def _check_ops(request: pb.TxnRequest, most: int, depth: int) -> None:
    count = max(len(request.compare), len(request.success), len(request.failure))
    if count > most or not depth:
        raise StoreRefused(StoreCode.TOO_MANY_OPS)
    if any(not each.key for each in request.compare):
        raise StoreRefused(StoreCode.EMPTY_KEY)
    for branch in (request.success, request.failure):
        for op in branch:
            match op.WhichOneof("request"):
                case "request_range":
                    check_range(op.request_range)
                case "request_put":
                    check_put(op.request_put)
                case "request_delete_range":
                    check_delete_range(op.request_delete_range)
                case "request_txn":
                    _check_ops(op.request_txn, most - count, depth - 1)
                case None:
                    raise StoreRefused(StoreCode.KEY_NOT_FOUND)


class _Ranges:
    """A set of keys, as ranges that do not overlap. So many ranges can come in one request that looking at all of them
    for each key would take minutes."""

    def __init__(self) -> None:
        self._firsts: list[bytes] = []
        self._ends: list[bytes] = []

    def __contains__(self, key: bytes) -> bool:
        at = bisect_right(self._firsts, key) - 1
        return at >= 0 and key < self._ends[at]

    def add(self, first: bytes, end: bytes) -> None:
        if end <= first:
            return
        low = bisect_left(self._ends, first)
        high = bisect_right(self._firsts, end)
        if low < high:
            first, end = min(first, self._firsts[low]), max(end, self._ends[high - 1])
        self._firsts[low:high] = [first]
        self._ends[low:high] = [end]

    def update(self, other: _Ranges) -> None:
        for first, end in zip(other._firsts, other._ends, strict=True):
            self.add(first, end)


class _Touched(NamedTuple):
    """By a branch, or by one within it."""

    puts: set[bytes]
    deletes: _Ranges


def _touched(ops: Iterable[pb.RequestOp]) -> _Touched:
    """Raises DUPLICATE_KEY.

    As in etcd, a put of one inner transaction and a delete of a later one pass, and so does a put beside a delete of
    all keys from one on (``FROM_KEY``): they are carried out one after the other.
    """
    ops = list(ops)
    puts: set[bytes] = set()
    deletes = _Ranges()
    for op in ops:
        if op.HasField("request_delete_range"):
            delete = op.request_delete_range
            deletes.add(delete.key, delete.range_end or delete.key + b"\0")

    def put(key: bytes, also: Iterable[bytes] = ()) -> None:
        if (key in puts and key not in also) or key in deletes:
            raise StoreRefused(StoreCode.DUPLICATE_KEY)
        puts.add(key)

    for op in ops:
        if op.HasField("request_txn"):
            then, other = _touched(op.request_txn.success), _touched(op.request_txn.failure)
            for key in then.puts:
                put(key)
            for key in other.puts:
                put(key, also=then.puts)  # one of the two branches is taken
            deletes.update(then.deletes)
            deletes.update(other.deletes)
    for op in ops:
        if op.HasField("request_put"):
            put(op.request_put.key)
    return _Touched(puts, deletes)

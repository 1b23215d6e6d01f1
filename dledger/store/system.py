"""The system's own keys, under ``/dledger/``: everybody reads them; who may write them.

All that the storage rests on lies there: groups, ledgers, cookies. Garbage collection takes a key that is not there for
a proof. So clients from outside write none of it, but for BookKeeper's clients, which write single keys below
``/dledger/bk/``.
"""

from __future__ import annotations

from collections.abc import Iterator

from dledger.etcdpb import rpc_pb2 as pb
from dledger.store.keys import KeyRange, key_range, prefix_end
from dledger.store.refusals import StoreCode, StoreRefused

SYSTEM_PREFIX = b"/dledger/"
BOOKKEEPER_PREFIX = b"/dledger/bk/"
_SYSTEM_KEYS = KeyRange(SYSTEM_PREFIX, prefix_end(SYSTEM_PREFIX))


def is_closed(key: bytes) -> bool:
    """Whether clients from outside must not write the key."""
    return key.startswith(SYSTEM_PREFIX) and not key.startswith(BOOKKEEPER_PREFIX)


def check_put(request: pb.PutRequest) -> None:
    """Of a client from outside. Raises PERMISSION_DENIED."""
    if is_closed(request.key):
        raise StoreRefused(StoreCode.PERMISSION_DENIED)


def check_delete_range(request: pb.DeleteRangeRequest) -> None:
    """Of a client from outside. Raises PERMISSION_DENIED, also for a range that only touches the system's keys, and for
    any range below BookKeeper's: a range may have more in it than its sender knows of."""
    of = key_range(request.key, request.range_end)
    is_refused = is_closed(request.key) if not request.range_end else of.overlaps(_SYSTEM_KEYS)
    if is_refused:
        raise StoreRefused(StoreCode.PERMISSION_DENIED)


def check_txn(request: pb.TxnRequest) -> None:
    """Of a client from outside. Raises PERMISSION_DENIED for the whole of it, whichever branch would be taken."""
    for op in _ops(request):
        if op.HasField("request_put"):
            check_put(op.request_put)
        elif op.HasField("request_delete_range"):
            check_delete_range(op.request_delete_range)


def _ops(request: pb.TxnRequest) -> Iterator[pb.RequestOp]:
    for branch in (request.success, request.failure):
        for op in branch:
            if op.HasField("request_txn"):
                yield from _ops(op.request_txn)
            else:
                yield op

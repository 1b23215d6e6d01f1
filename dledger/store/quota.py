"""How much a request may add to the store. The quota is each node's setting; that it is used up is state: an alarm."""

from __future__ import annotations

from collections.abc import Iterable

from dledger.etcdpb import rpc_pb2 as pb

DEFAULT_QUOTA_BYTES = 2 << 30
_PAIR_COST_BYTES = 256
LEASE_COST_BYTES = 64


def cost_of_put(request: pb.PutRequest) -> int:
    """In bytes, more or less, as etcd counts."""
    return _PAIR_COST_BYTES + len(request.key) + len(request.value)


def cost_of_txn(request: pb.TxnRequest) -> int:
    """Of the dearer branch; 0: it puts nothing."""
    return max(_cost_of_ops(request.success), _cost_of_ops(request.failure))


def _cost_of_ops(ops: Iterable[pb.RequestOp]) -> int:
    cost = 0
    for op in ops:
        if op.HasField("request_put"):
            cost += cost_of_put(op.request_put)
        elif op.HasField("request_txn"):
            cost += cost_of_txn(op.request_txn)
    return cost


def has_room(size_bytes: int, cost_bytes: int, quota_bytes: int = DEFAULT_QUOTA_BYTES) -> bool:
    """Whether a store of this size takes what costs so much; where it does not, whoever asks raises the alarm NOSPACE
    first. A quota of less than 0: there is none."""
    return quota_bytes < 0 or not cost_bytes or size_bytes + cost_bytes < quota_bytes

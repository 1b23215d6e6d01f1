"""Requests to a store, of all kinds, wrong ones too. Few keys, values and leases: so that they meet."""

from __future__ import annotations

from typing import Literal, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from dledger.etcdpb import rpc_pb2 as pb

KEYS = [b"a", b"b", b"b\0", b"ba", b"c", b"\0", b"\xff", b"\xff\xff"]
LEASES = [1, 2, 3]

keys = st.sampled_from([b"a", b"a", b"b", b"b", b"c", *KEYS])
ends = st.sampled_from([b"", b"\0", b"b", b"c", b"d", b"\xff", b"a"])
values = st.sampled_from([b"", b"x", b"y", b"zz"])
lease_ids = st.sampled_from([0, 0, *LEASES, 9])
small = st.integers(-2, 30)
flags = st.booleans()


T = TypeVar("T")


def rarely(strategy: SearchStrategy[T], usual: T) -> SearchStrategy[T]:
    return st.one_of(st.just(usual), st.just(usual), strategy)


puts = st.builds(
    lambda key, value, lease, prev, ignores: pb.PutRequest(
        key=key,
        value=b"" if ignores == "value" else value,
        lease=0 if ignores == "lease" else lease,
        prev_kv=prev,
        ignore_value=ignores == "value",
        ignore_lease=ignores == "lease",
    ),
    keys,
    values,
    lease_ids,
    flags,
    rarely(st.sampled_from(["value", "lease"]), ""),
)
simple_puts = st.builds(pb.PutRequest, key=keys, value=values, lease=st.sampled_from([0, 1, 1, 2]))
deletes = st.builds(pb.DeleteRangeRequest, key=keys, range_end=ends, prev_kv=flags)
ranges = st.builds(
    pb.RangeRequest,
    key=keys,
    range_end=ends,
    limit=rarely(st.integers(-1, 4), 0),
    revision=rarely(small, 0),
    sort_order=st.sampled_from([0, 1, 2]),
    sort_target=st.sampled_from([0, 1, 2, 3, 4]),
    keys_only=flags,
    count_only=rarely(st.just(True), False),
    min_mod_revision=rarely(small, 0),
    max_mod_revision=rarely(small, 0),
    min_create_revision=rarely(small, 0),
    max_create_revision=rarely(small, 0),
)


FIELDS: tuple[Literal["version", "create_revision", "mod_revision", "lease"], ...] = (
    "version",
    "create_revision",
    "mod_revision",
    "lease",
)
TARGETS = (pb.Compare.VERSION, pb.Compare.CREATE, pb.Compare.MOD, pb.Compare.LEASE)


def _compare_number(compare: pb.Compare, at: int, number: int) -> pb.Compare:
    compare.target = TARGETS[at]
    setattr(compare, FIELDS[at], number)
    return compare


def _compare_value(compare: pb.Compare, value: bytes) -> pb.Compare:
    compare.target, compare.value = pb.Compare.VALUE, value
    return compare


_named = st.builds(pb.Compare, key=keys, range_end=rarely(ends, b""), result=st.sampled_from(range(4)))
compares = st.one_of(
    st.builds(_compare_number, _named, st.integers(0, 3), st.integers(0, 6)), st.builds(_compare_value, _named, values)
)
simple_ops = st.one_of(
    puts.map(lambda each: pb.RequestOp(request_put=each)),
    deletes.map(lambda each: pb.RequestOp(request_delete_range=each)),
    ranges.map(lambda each: pb.RequestOp(request_range=each)),
)


@st.composite
def txns(draw: st.DrawFn, depth: int = 3) -> pb.TxnRequest:
    """With transactions in it, ``depth`` levels of them at most."""

    def ops() -> list[pb.RequestOp]:
        count = draw(st.integers(0, 4 if depth == 3 else 2))
        return [
            pb.RequestOp(request_txn=draw(txns(depth - 1))) if depth > 1 and draw(st.integers(0, 3)) == 3 else draw(op)
            for op in [simple_ops] * count
        ]

    return pb.TxnRequest(compare=draw(st.lists(compares, max_size=2)), success=ops(), failure=ops())


grants = st.builds(
    pb.LeaseGrantRequest, ID=st.sampled_from([0, *LEASES]), TTL=st.sampled_from([-1, 0, 1, 2, 60, 9_000_000_001])
)

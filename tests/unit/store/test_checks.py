"""What is refused by the request alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.etcdpb import rpc_pb2 as pb
from dledger.store import commands
from dledger.store.checks import MAX_REQUEST_BYTES, MAX_TXN_DEPTH, MAX_TXN_OPS
from dledger.store.machine import Store
from dledger.store.refusals import StoreCode, StoreRefused
from tests.unit.store import strategies


def put(key: bytes = b"k", **fields: object) -> pb.RequestOp:
    return pb.RequestOp(request_put=pb.PutRequest(key=key, **fields))  # type: ignore[arg-type]


def delete(key: bytes, range_end: bytes = b"") -> pb.RequestOp:
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key, range_end=range_end))


def inner(then: Sequence[pb.RequestOp] = (), other: Sequence[pb.RequestOp] = ()) -> pb.RequestOp:
    return pb.RequestOp(request_txn=pb.TxnRequest(success=then, failure=other))


def refusal(request: commands.Request, *, is_system: bool = False) -> StoreCode | None:
    try:
        commands.check(request, is_system=is_system)
    except StoreRefused as refused:
        return refused.code
    return None


def of_txn(*then: pb.RequestOp, other: Sequence[pb.RequestOp] = ()) -> StoreCode | None:
    return refusal(pb.TxnRequest(success=then, failure=other))


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (pb.PutRequest(), StoreCode.EMPTY_KEY),
        (pb.PutRequest(key=b"k", value=b"v", ignore_value=True), StoreCode.VALUE_PROVIDED),
        (pb.PutRequest(key=b"k", lease=1, ignore_lease=True), StoreCode.LEASE_PROVIDED),
        (pb.PutRequest(key=b"k", value=bytes(MAX_REQUEST_BYTES)), StoreCode.REQUEST_TOO_LARGE),
        (pb.DeleteRangeRequest(range_end=b"\0"), StoreCode.EMPTY_KEY),
        (pb.TxnRequest(compare=[pb.Compare()]), StoreCode.EMPTY_KEY),
        (pb.TxnRequest(success=[pb.RequestOp()]), StoreCode.KEY_NOT_FOUND),
        (pb.TxnRequest(failure=[put(b"")]), StoreCode.EMPTY_KEY),
        (pb.TxnRequest(success=[pb.RequestOp(request_range=pb.RangeRequest())]), StoreCode.EMPTY_KEY),
    ],
)
def test_a_request_of_the_wrong_shape_is_refused_as_etcd_does(request_: commands.Request, code: StoreCode) -> None:
    assert refusal(request_) is code


@pytest.mark.parametrize("branch", ["compare", "success", "failure"])
def test_a_transaction_has_at_most_128_operations_a_branch(branch: str) -> None:
    many = [pb.Compare(key=b"k")] if branch == "compare" else [delete(b"k")]
    assert refusal(pb.TxnRequest(**{branch: many * MAX_TXN_OPS})) is None  # type: ignore[arg-type]
    assert refusal(pb.TxnRequest(**{branch: many * (MAX_TXN_OPS + 1)})) is StoreCode.TOO_MANY_OPS  # type: ignore[arg-type]


def test_inner_operations_count_with_the_outer_ones() -> None:
    assert of_txn(*[delete(b"k")] * 27, inner([delete(b"k")] * 100)) is None
    assert of_txn(*[delete(b"k")] * 28, inner([delete(b"k")] * 100)) is StoreCode.TOO_MANY_OPS


def nested(depth: int) -> pb.TxnRequest:
    request = pb.TxnRequest(success=[put()])
    for _ in range(depth - 1):
        request = pb.TxnRequest(success=[pb.RequestOp(request_txn=request)])
    return request


def test_the_deepest_transaction_that_passes_is_a_command_that_can_be_applied() -> None:
    store = Store()
    answer = store.decode_answer(store.apply(commands.command(nested(MAX_TXN_DEPTH))))
    assert answer.header.revision == 2
    assert refusal(nested(MAX_TXN_DEPTH + 1)) is StoreCode.TOO_MANY_OPS


def test_a_key_is_put_once() -> None:
    assert of_txn(put(b"a"), put(b"b")) is None
    assert of_txn(put(b"a"), put(b"a")) is StoreCode.DUPLICATE_KEY
    assert of_txn(other=[put(b"a"), put(b"a")]) is StoreCode.DUPLICATE_KEY
    assert of_txn(put(b"a"), other=[put(b"a")]) is None


def test_a_key_is_put_once_over_inner_transactions_of_which_either_branch_is_taken() -> None:
    assert of_txn(inner([put(b"a")], [put(b"a")])) is None
    assert of_txn(inner([put(b"a")]), put(b"a")) is StoreCode.DUPLICATE_KEY
    assert of_txn(inner([put(b"a")]), inner([], [put(b"a")])) is StoreCode.DUPLICATE_KEY


def test_a_key_is_not_put_and_deleted() -> None:
    assert of_txn(put(b"b"), delete(b"a", b"c")) is StoreCode.DUPLICATE_KEY
    assert of_txn(delete(b"b"), put(b"b")) is StoreCode.DUPLICATE_KEY
    assert of_txn(delete(b"a", b"b"), put(b"b")) is None
    assert of_txn(inner([delete(b"b")]), put(b"b")) is StoreCode.DUPLICATE_KEY
    assert of_txn(inner([delete(b"b")]), inner([put(b"b")])) is StoreCode.DUPLICATE_KEY


def test_what_etcd_lets_pass_passes_and_is_carried_out_in_order() -> None:
    request = pb.TxnRequest(success=[inner([put(b"b", value=b"v")]), inner([delete(b"a", b"\0")])])
    store = Store()
    store.apply(commands.command(request, is_system=True))
    assert store.pairs.get(b"b") is None
    assert store.pairs.revision == 2


@given(
    st.lists(st.tuples(strategies.keys, strategies.ends), max_size=8),
    st.lists(strategies.keys, unique=True, max_size=4),
)
def test_a_put_is_refused_beside_deletes_of_any_ranges_that_have_its_key(
    deletes: list[tuple[bytes, bytes]], puts: list[bytes]
) -> None:
    def has(each: tuple[bytes, bytes], key: bytes) -> bool:
        first, end = each
        return key == first if not end else first <= key < end

    is_refused = any(has(each, key) for each, key in product(deletes, puts))
    request = pb.TxnRequest(success=[*[delete(*each) for each in deletes], *map(put, puts)])
    assert refusal(request, is_system=True) is (StoreCode.DUPLICATE_KEY if is_refused else None)


def test_a_request_as_large_as_it_may_be_is_judged_within_a_moment() -> None:
    """Each of its levels has as many operations as fit: judged pair by pair it would take minutes."""
    ops = [
        inner([op for each in range(20) for op in (put(b"%d-%d" % (at, each)), delete(b"x%d-%d" % (at, each)))])
        for at in range(50)
    ]
    assert of_txn(*ops) is None


# The system's own keys --------------------------------------------------------------------------------------------

DENIED = StoreCode.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (pb.PutRequest(key=b"/dledger/groups/a"), DENIED),
        (pb.PutRequest(key=b"/dledger/"), DENIED),
        (pb.PutRequest(key=b"/dledger/bk"), DENIED),
        (pb.PutRequest(key=b"/dledger/bk/LEDGERS/1"), None),
        (pb.PutRequest(key=b"/dledgers"), None),
        (pb.PutRequest(key=b"/dledger"), None),
        (pb.DeleteRangeRequest(key=b"/dledger/groups/a"), DENIED),
        (pb.DeleteRangeRequest(key=b"/dledger/bk/LEDGERS/1"), None),
        (pb.DeleteRangeRequest(key=b"/dledger/bk/", range_end=b"/dledger/bk0"), DENIED),
        (pb.DeleteRangeRequest(key=b"\0", range_end=b"\0"), DENIED),
        (pb.DeleteRangeRequest(key=b"/dledger/z", range_end=b"\0"), DENIED),
        (pb.DeleteRangeRequest(key=b"/a", range_end=b"/dledger/\0"), DENIED),
        (pb.DeleteRangeRequest(key=b"/a", range_end=b"/dledger/"), None),
        (pb.DeleteRangeRequest(key=b"/dledger0", range_end=b"\0"), None),
        (pb.DeleteRangeRequest(key=b"/dledger/b", range_end=b"/dledger/a"), None),
        (pb.TxnRequest(success=[put(b"a"), put(b"/dledger/x")]), DENIED),
        (pb.TxnRequest(failure=[inner([], [delete(b"a", b"z")])]), None),
        (pb.TxnRequest(failure=[inner([], [delete(b"/", b"0")])]), DENIED),
        (pb.TxnRequest(compare=[pb.Compare(key=b"/dledger/x")], success=[put(b"/dledger/bk/1")]), None),
    ],
)
def test_clients_from_outside_write_only_bookkeepers_single_keys(
    request_: commands.Request, code: StoreCode | None
) -> None:
    assert refusal(request_) is code
    assert refusal(request_, is_system=True) is None


def test_a_command_that_was_not_judged_before_is_judged_when_it_is_applied() -> None:
    store = Store()
    command = commands.command(pb.PutRequest(key=b"/dledger/x"), is_system=True)
    store.apply(command)
    outside = commands.command(pb.PutRequest(key=b"/dledgerXx")).replace(b"/dledgerXx", b"/dledger/x")
    with pytest.raises(StoreRefused) as refused:
        store.apply(outside)
    assert refused.value.code is DENIED

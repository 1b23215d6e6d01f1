"""Ranges of keys as of a revision, as etcd's Range answers them: filtered, sorted, cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from dledger.etcdpb import rpc_pb2 as pb
from dledger.store.keys import key_range
from dledger.store.mvcc import Mvcc
from dledger.store.records import Record, add_pairs, key_of, unpack, value_of
from dledger.store.refusals import StoreCode, StoreRefused

_KEY, _VALUE = pb.RangeRequest.KEY, pb.RangeRequest.VALUE
_SORT_KEYS: dict[int, Callable[[Record], Any]] = {
    pb.RangeRequest.VERSION: lambda each: unpack(each)[2],
    pb.RangeRequest.CREATE: lambda each: unpack(each)[0],
    pb.RangeRequest.MOD: lambda each: unpack(each)[1],
    pb.RangeRequest.VALUE: value_of,
}


def check_revision(store: Mvcc, revision: int) -> None:
    """Raises FUTURE_REVISION or COMPACTED for a revision that cannot be read; one of 0 or less is the present."""
    if revision > store.read_revision:
        raise StoreRefused(StoreCode.FUTURE_REVISION)
    if 0 < revision < store.compact_revision:
        raise StoreRefused(StoreCode.COMPACTED)


def read_range(store: Mvcc, request: pb.RangeRequest, answer: pb.RangeResponse, *, is_counted: bool = True) -> None:
    """Into an empty answer, whose header has the store's revision alone. A count of the past looks at all keys: without
    it, a limit ends the search. Raises FUTURE_REVISION and COMPACTED."""
    check_revision(store, request.revision)
    of, is_now = key_range(request.key, request.range_end), request.revision <= 0
    answer.header.revision = store.read_revision
    if of.is_empty:
        return
    if is_now:
        answer.count = store.count(of)
        found = store.records(of)
    elif not is_counted:
        found = store.records_at(of, request.revision)
    else:
        then = list(store.records_at(of, request.revision))
        answer.count = len(then)
        found = iter(then)
    if request.count_only:
        return
    if request.limit > 0 and _is_cut_first(request):
        found = islice(found, request.limit + 1)
    matching = _sorted(list(_within_bounds(found, request)), request)
    if 0 < request.limit < len(matching):
        matching = matching[: request.limit]
        answer.more = True
    # etcd answers such a request from its index of keys, which has no leases in it.
    has_lease = request.sort_target == _VALUE
    add_pairs(answer.kvs, matching, keys_only=request.keys_only, has_lease=has_lease)


def _is_cut_first(request: pb.RangeRequest) -> bool:
    """Whether the limit counts keys in their own order, before anything is sorted. So it is in etcd even where the
    target is not the key, if no order is given."""
    order, target = request.sort_order, request.sort_target
    in_order = order == pb.RangeRequest.NONE or (order == pb.RangeRequest.ASCEND and target == _KEY)
    return in_order and not _has_bounds(request)


def _has_bounds(request: pb.RangeRequest) -> bool:
    return bool(
        request.min_mod_revision
        or request.max_mod_revision
        or request.min_create_revision
        or request.max_create_revision
    )


def _within_bounds(records: Iterator[Record], request: pb.RangeRequest) -> Iterator[Record]:
    if not _has_bounds(request):
        yield from records
        return
    least_mod, most_mod = request.min_mod_revision, request.max_mod_revision
    least_create, most_create = request.min_create_revision, request.max_create_revision
    for each in records:
        create, mod, _, _, _, _ = unpack(each)
        if (
            (not least_mod or mod >= least_mod)
            and (not most_mod or mod <= most_mod)
            and (not least_create or create >= least_create)
            and (not most_create or create <= most_create)
        ):
            yield each


def _sorted(records: list[Record], request: pb.RangeRequest) -> list[Record]:
    """Equal ones stay in the order of their keys. A target other than the key is sorted for even without an order."""
    is_descending = request.sort_order == pb.RangeRequest.DESCEND
    if request.sort_target == _KEY:
        return records[::-1] if is_descending else records
    return sorted(records, key=_SORT_KEYS[request.sort_target], reverse=is_descending)


def previous(store: Mvcc, change: Record) -> Record | None:
    """What the key was right before this change; None: it did not exist, or that is compacted."""
    create, mod, _, _, _, _ = unpack(change)
    if create == mod or mod - 1 < store.compact_revision:
        return None
    return store.get_at(key_of(change), mod - 1)

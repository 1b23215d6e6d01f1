"""A range that is answered in pieces: of one revision, and none of them large."""

from __future__ import annotations

from collections.abc import Iterator

from dledger.etcdpb import rpc_pb2 as rpc
from dledger.server.etcd.backend import StoreBackend
from dledger.server.etcd.headers import new_header
from dledger.server.etcd.refusals import EtcdError, Refusal
from dledger.store.checks import MAX_REQUEST_BYTES

NO_SORTED_STREAM = EtcdError("UNIMPLEMENTED", "RangeStream does not support custom sort orders")
NO_FILTERED_STREAM = EtcdError("UNIMPLEMENTED", "RangeStream does not support revision filters")
FIRST_CHUNK_KEYS = 10
NO_LIMIT = (1 << 63) - 1


def check_stream(request: rpc.RangeRequest) -> None:
    """Raises Refusal for what needs the whole range at once."""
    is_by_key = request.sort_target == rpc.RangeRequest.KEY and request.sort_order == rpc.RangeRequest.ASCEND
    if request.sort_order != rpc.RangeRequest.NONE and not is_by_key:
        raise Refusal(NO_SORTED_STREAM)
    bounds = (
        request.min_mod_revision,
        request.max_mod_revision,
        request.min_create_revision,
        request.max_create_revision,
    )
    if any(bounds):
        raise Refusal(NO_FILTERED_STREAM)


def chunks(backend: StoreBackend, request: rpc.RangeRequest) -> Iterator[rpc.RangeResponse]:
    """The last one has the header, and how many keys there are. Raises StoreRefused, also when the revision is
    compacted in between."""
    revision = backend.store.pairs.revision
    part = rpc.RangeRequest()
    part.CopyFrom(request)
    part.revision = request.revision or revision
    if request.count_only:
        yield _ended(backend, revision, backend.store.range(part))
        return
    total, sent = request.limit or NO_LIMIT, 0
    part.limit = min(FIRST_CHUNK_KEYS, total)
    while True:
        found = backend.store.range(part, is_counted=False)
        sent += len(found.kvs)
        is_last = not found.more or sent == total
        found.count = sent if is_last else 0
        if found.kvs:
            part.key = found.kvs[-1].key + b"\0"
        if is_last and found.more:
            found.count += _count(backend, part)
        if is_last:
            yield _ended(backend, revision, found)
            return
        yield rpc.RangeResponse(kvs=found.kvs)
        part.limit = min(_next_limit(part.limit, found.ByteSize()), total - sent)


def _ended(backend: StoreBackend, revision: int, last: rpc.RangeResponse) -> rpc.RangeResponse:
    """``revision`` is the store's when the call came."""
    last.header.CopyFrom(new_header(backend, revision))
    return last


def _count(backend: StoreBackend, rest: rpc.RangeRequest) -> int:
    """How many keys it has without a limit."""
    request = rpc.RangeRequest(key=rest.key, range_end=rest.range_end, revision=rest.revision, count_only=True)
    return backend.store.range(request).count


def _next_limit(last: int, last_bytes: int) -> int:
    if last_bytes < MAX_REQUEST_BYTES // 2:
        return last * 2
    return max(1, last // 2) if last_bytes > MAX_REQUEST_BYTES * 2 else last

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
    total, sent = request.limit or NO_LIMIT, 0
    part = rpc.RangeRequest()
    part.CopyFrom(request)
    part.limit = min(FIRST_CHUNK_KEYS, total) if total > 0 else total
    first_revision = 0
    while True:
        found = backend.store.range(part)
        if not first_revision:
            first_revision = found.header.revision
            part.revision = part.revision or first_revision
        if request.count_only:
            yield rpc.RangeResponse(header=new_header(backend, first_revision), count=found.count)
            return
        sent += len(found.kvs)
        is_last = not found.more or sent == total
        answer = rpc.RangeResponse(kvs=found.kvs)
        if is_last:
            answer.header.CopyFrom(new_header(backend, first_revision))
            answer.more = found.more
            answer.count = sent - len(found.kvs) + found.count
        yield answer
        if is_last:
            return
        part.key = found.kvs[-1].key + b"\0"
        part.limit = min(_next_limit(part.limit, found.ByteSize()), total - sent)


def _next_limit(last: int, last_bytes: int) -> int:
    if last_bytes < MAX_REQUEST_BYTES // 2:
        return last * 2
    return max(1, last // 2) if last_bytes > MAX_REQUEST_BYTES * 2 else last

"""Reads of the store, and other calls that may be made again: asked of one node after the other until one answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dledger.client.store.keys import FROM_KEY, KeyRange
from dledger.client.store.refusals import unary
from dledger.client.store.results import KeyValue, Pairs
from dledger.client.store.stubs import StoreStubs
from dledger.common.config import MIB
from dledger.common.errors import Code, DLedgerError
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.rpc.client.call_loop import CallLoop

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator, Callable

    from dledger.client.store.nodes import StoreNodes
    from dledger.rpc.client.channels import Endpoint

ATTEMPT_MS = 3_000
"""How long one node may take."""
FIRST_PAGE_KEYS = 64
MOST_PAGE_KEYS = 8_192
PAGE_BYTES = MIB
"""Pages become larger while they are below, and smaller while they are above four times as much."""


class Reader:
    def __init__(self, nodes: StoreNodes, rng: random.Random) -> None:
        self._nodes = nodes
        self._rng = rng

    async def ask(self, method_of: Callable[[StoreStubs], Any], request: Any, timeout_ms: float) -> Any:
        """One answer. ``method_of`` picks the method of the stubs. Raises the store's refusal, Unavailable and
        DeadlineExceeded."""

        async def call(endpoint: Endpoint, attempt_ms: float) -> Any:
            return await unary(endpoint, method_of(endpoint.stub(StoreStubs)), request, attempt_ms)

        return await CallLoop(timeout_ms, self._rng).ask(self._nodes, self._nodes.find, call, attempt_ms=ATTEMPT_MS)

    async def range(self, request: rpc.RangeRequest, timeout_ms: float) -> rpc.RangeResponse:
        answer: rpc.RangeResponse = await self.ask(lambda stubs: stubs.kv.Range, request, timeout_ms)
        return answer

    async def pages(
        self, of: KeyRange, request: rpc.RangeRequest, limit: int, timeout_ms: float
    ) -> AsyncGenerator[Pairs]:
        """The range, in pages of about ``PAGE_BYTES``, all as of one revision; one page at least. ``limit``: of all
        pages, 0: none. ``request`` says how it is read. Each page has ``timeout_ms``. Raises Compacted when the history
        up to that revision goes meanwhile."""
        is_descending = request.sort_order == rpc.RangeRequest.DESCEND
        left, page_keys, count = limit, FIRST_PAGE_KEYS, -1
        while True:
            request.key, request.range_end = of.key, of.end
            request.limit = min(page_keys, left) if left else page_keys
            try:
                answer = await self.range(request, timeout_ms)
            except DLedgerError as refusal:
                if refusal.code is not Code.BATCH_TOO_LARGE or request.limit == 1:
                    raise
                page_keys = max(1, request.limit // 8)
                continue
            request.revision = request.revision or answer.header.revision
            count = answer.count if count < 0 else count
            pairs = [KeyValue.from_wire(each) for each in answer.kvs]
            yield Pairs(pairs, request.revision, count)
            left = left and left - len(pairs)
            if not answer.more or (limit and not left):
                return
            of = _behind(of, pairs[-1].key, is_descending=is_descending)
            page_keys = _next_page_keys(page_keys, answer.ByteSize())


def _behind(of: KeyRange, last: bytes, *, is_descending: bool) -> KeyRange:
    return KeyRange(of.key, last) if is_descending else KeyRange(last + b"\0", of.end or FROM_KEY)


def _next_page_keys(page_keys: int, page_bytes: int) -> int:
    if page_bytes < PAGE_BYTES:
        return min(2 * page_keys, MOST_PAGE_KEYS)
    return max(1, page_keys // 2) if page_bytes > 4 * PAGE_BYTES else page_keys

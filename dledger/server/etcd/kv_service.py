"""etcdserverpb.KV."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from dledger.etcdpb import rpc_pb2 as rpc
from dledger.etcdpb import rpc_pb2_grpc
from dledger.server.etcd.backend import StoreBackend
from dledger.server.etcd.carry_out import carry_out
from dledger.server.etcd.headers import fill_header
from dledger.server.etcd.range_stream import check_stream, chunks
from dledger.server.etcd.refusals import Context, streaming, unary
from dledger.store.checks import check_range
from dledger.store.commands import check
from dledger.store.quota import cost_of_put, cost_of_txn
from dledger.store.txn import is_read_only, is_serializable, newest_revision


class KVService(rpc_pb2_grpc.KVServicer):
    def __init__(self, backend: StoreBackend) -> None:
        self.backend = backend

    @unary
    async def Range(self, request: rpc.RangeRequest) -> rpc.RangeResponse:  # noqa: N802
        check_range(request)
        await self._catch_up(request.revision, is_serializable=request.serializable)
        answer = self.backend.store.range(request)
        fill_header(self.backend, answer)
        return answer

    @streaming
    async def RangeStream(  # noqa: N802
        self, request: rpc.RangeRequest, _context: Context
    ) -> AsyncGenerator[rpc.RangeStreamResponse, None]:
        check_range(request)
        check_stream(request)
        await self._catch_up(request.revision, is_serializable=request.serializable)
        for chunk in chunks(self.backend, request):
            yield rpc.RangeStreamResponse(range_response=chunk)

    @unary
    async def Put(self, request: rpc.PutRequest) -> rpc.PutResponse:  # noqa: N802
        answer: rpc.PutResponse = await carry_out(self.backend, request, cost_of_put(request))
        return answer

    @unary
    async def DeleteRange(self, request: rpc.DeleteRangeRequest) -> rpc.DeleteRangeResponse:  # noqa: N802
        answer: rpc.DeleteRangeResponse = await carry_out(self.backend, request)
        return answer

    @unary
    async def Txn(self, request: rpc.TxnRequest) -> rpc.TxnResponse:  # noqa: N802
        if not is_read_only(request):
            written: rpc.TxnResponse = await carry_out(self.backend, request, cost_of_txn(request))
            return written
        check(request)
        await self._catch_up(newest_revision(request), is_serializable=is_serializable(request))
        answer = self.backend.store.read_txn(request)
        fill_header(self.backend, answer)
        return answer

    @unary
    async def Compact(self, request: rpc.CompactionRequest) -> rpc.CompactionResponse:  # noqa: N802
        answer: rpc.CompactionResponse = await carry_out(self.backend, request)
        return answer

    async def _catch_up(self, revision: int, *, is_serializable: bool) -> None:
        """A read that may be stale waits too where its client knows a later revision than this node: clients that take
        one node after the other read on at a revision which another one told them."""
        if not is_serializable or revision > self.backend.store.pairs.revision:
            await self.backend.barrier()

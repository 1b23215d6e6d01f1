"""etcdserverpb.KV."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from dledger.etcdpb import rpc_pb2 as rpc
from dledger.etcdpb import rpc_pb2_grpc
from dledger.server.etcd.backend import StoreBackend
from dledger.server.etcd.headers import fill_header
from dledger.server.etcd.range_stream import check_stream, chunks
from dledger.server.etcd.refusals import Context, streaming, unary
from dledger.server.etcd.room import ensure_room
from dledger.store.checks import check_range
from dledger.store.commands import Request, check, command
from dledger.store.quota import cost_of_put, cost_of_txn
from dledger.store.txn import is_read_only, is_serializable


class KVService(rpc_pb2_grpc.KVServicer):
    def __init__(self, backend: StoreBackend) -> None:
        self.backend = backend

    @unary
    async def Range(self, request: rpc.RangeRequest) -> rpc.RangeResponse:  # noqa: N802
        check_range(request)
        if not request.serializable:
            await self.backend.barrier()
        answer = self.backend.store.range(request)
        fill_header(self.backend, answer)
        return answer

    @streaming
    async def RangeStream(  # noqa: N802
        self, request: rpc.RangeRequest, _context: Context
    ) -> AsyncGenerator[rpc.RangeStreamResponse, None]:
        check_range(request)
        check_stream(request)
        if not request.serializable:
            await self.backend.barrier()
        for chunk in chunks(self.backend, request):
            yield rpc.RangeStreamResponse(range_response=chunk)

    @unary
    async def Put(self, request: rpc.PutRequest) -> rpc.PutResponse:  # noqa: N802
        answer: rpc.PutResponse = await self._submit(request, cost_of_put(request))
        return answer

    @unary
    async def DeleteRange(self, request: rpc.DeleteRangeRequest) -> rpc.DeleteRangeResponse:  # noqa: N802
        answer: rpc.DeleteRangeResponse = await self._submit(request)
        return answer

    @unary
    async def Txn(self, request: rpc.TxnRequest) -> rpc.TxnResponse:  # noqa: N802
        if not is_read_only(request):
            written: rpc.TxnResponse = await self._submit(request, cost_of_txn(request))
            return written
        check(request)
        if not is_serializable(request):
            await self.backend.barrier()
        answer = self.backend.store.read_txn(request)
        fill_header(self.backend, answer)
        return answer

    @unary
    async def Compact(self, request: rpc.CompactionRequest) -> rpc.CompactionResponse:  # noqa: N802
        answer: rpc.CompactionResponse = await self._submit(request)
        return answer

    async def _submit(self, request: Request, cost_bytes: int = 0) -> Any:
        submitted = command(request)
        await ensure_room(self.backend, cost_bytes)
        answer = await self.backend.submit(submitted)
        fill_header(self.backend, answer)
        return answer

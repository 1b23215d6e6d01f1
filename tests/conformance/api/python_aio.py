"""The node's API through grpcio's client for asyncio: ``python -m tests.conformance.api.python_aio HOST:PORT``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from typing import Any

import grpc

from dledger.v1 import log_pb2, log_pb2_grpc
from tests.conformance.api.python_sync import FAR_INDEX, LARGE, SOON_S, TIMEOUT_S, check_refusal


class Checks:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: Any = log_pb2_grpc.LogServiceStub(channel)

    async def _append(self, *records: bytes) -> Any:
        return await self._stub.Append(log_pb2.AppendRequest(records=records), timeout=TIMEOUT_S)

    async def append(self) -> None:
        assert (await self._append(b"a", b"b", b"c")).count == 3

    async def _same(self, record: bytes) -> None:
        index = (await self._append(record)).base_index
        assert (await self._stub.Get(log_pb2.GetRequest(index=index), timeout=TIMEOUT_S)).entry.value == record

    async def get(self) -> None:
        await self._same(b"python")

    async def large(self) -> None:
        await self._same(LARGE)

    async def read_follow(self) -> None:
        index = (await self._append(b"one")).base_index
        call = self._stub.Read(log_pb2.ReadRequest(start_index=index, follow=True), timeout=TIMEOUT_S)
        assert (await call.read()).batches[-1].body.endswith(b"one")
        await self._append(b"two")
        assert (await call.read()).batches[-1].body.endswith(b"two")
        call.cancel()

    async def metadata(self) -> None:
        metadata = (("x-text", "some text"), ("x-raw-bin", b"\x00\x01\xff"))
        request = log_pb2.GetMetadataRequest()
        assert (await self._stub.GetMetadata(request, timeout=TIMEOUT_S, metadata=metadata)).leader_id

    async def _followed(self, timeout_s: float) -> Any:
        end = (await self._append(b"end")).base_index + 1
        return self._stub.Read(log_pb2.ReadRequest(start_index=end, follow=True), timeout=timeout_s)

    async def deadline(self) -> None:
        call = await self._followed(SOON_S)
        assert (await _failure(call.read())).code() is grpc.StatusCode.DEADLINE_EXCEEDED

    async def cancel(self) -> None:
        call = await self._followed(TIMEOUT_S)
        asyncio.get_running_loop().call_later(SOON_S, call.cancel)
        assert await call.code() is grpc.StatusCode.CANCELLED

    async def refusal(self) -> None:
        check_refusal(await _failure(self._stub.Get(log_pb2.GetRequest(index=FAR_INDEX), timeout=TIMEOUT_S)))


async def _failure(call: Awaitable[object]) -> Any:
    try:
        answer = await call
    except grpc.RpcError as failure:
        return failure
    raise AssertionError(f"it was answered: {answer!r:.60}")


async def main(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        checks = Checks(channel)
        for name in ("append", "get", "read_follow", "large", "metadata", "deadline", "cancel", "refusal"):
            try:
                await getattr(checks, name)()
            except Exception as failure:  # noqa: BLE001  # whatever it is, the judge is told
                print(f"failed {name}: {type(failure).__name__}: {' '.join(str(failure).split())}")
            else:
                print(f"ok {name}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))

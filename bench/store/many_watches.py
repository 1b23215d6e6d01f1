"""Watches of one key on one node, a hundred to a stream, as etcd's clients have them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc

from bench.drivers.python_load import say
from bench.processes import DIRECT
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.etcdpb import rpc_pb2_grpc as stubs

WATCHES_A_STREAM = 100
KEY = b"watched"


class _Told:
    """Counts the watches that told of a put, and when the first and the last one did."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._left = 0
        self.first = self.last = 0.0
        self.all = asyncio.Event()

    def expect(self) -> None:
        self._left, self.first = self._count, 0.0
        self.all.clear()

    def note(self) -> None:
        self.last = time.perf_counter()
        self.first = self.first or self.last
        self._left -= 1
        if not self._left:
            self.all.set()


async def tell_all(endpoints: str, count: int, lines: AsyncIterator[str]) -> None:
    """Says ``watching``; and for each line puts the key, and says ``told`` once all watches have told of it."""
    told = _Told(count)
    async with (
        grpc.aio.insecure_channel(endpoints.partition(",")[0], options=DIRECT) as channel,
        asyncio.TaskGroup() as tasks,
    ):
        watch, kv = stubs.WatchStub(channel), stubs.KVStub(channel)
        sizes = [min(WATCHES_A_STREAM, count - at) for at in range(0, count, WATCHES_A_STREAM)]
        streams = [await _begun(watch, size) for size in sizes]
        reading = [tasks.create_task(_read(stream, told)) for stream in streams]
        say(event="watching", streams=len(streams))
        async for _ in lines:
            told.expect()
            began = time.perf_counter()
            await kv.Put(rpc.PutRequest(key=KEY, value=bytes(100)))
            put_s = time.perf_counter() - began
            await told.all.wait()
            first_s, last_s = told.first - began, told.last - began
            say(event="told", put_s=round(put_s, 4), first_s=round(first_s, 4), last_s=round(last_s, 4))
        for task in reading:
            task.cancel()


async def _begun(watch: Any, count: int) -> Any:
    stream = watch.Watch()
    for _ in range(count):
        await stream.write(rpc.WatchRequest(create_request=rpc.WatchCreateRequest(key=KEY)))
    for _ in range(count):
        answer = await stream.read()
        assert answer.created, answer
    return stream


async def _read(stream: Any, told: _Told) -> None:
    while True:
        answer = await stream.read()
        if answer is grpc.aio.EOF or answer.canceled:
            raise RuntimeError(f"a stream of watches ended: {answer}")
        for _ in answer.events:
            told.note()

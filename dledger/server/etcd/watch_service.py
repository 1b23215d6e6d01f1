"""etcdserverpb.Watch: streams of watches, each stream with as many watches as its client likes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from random import Random
from typing import Any

from dledger.etcdpb import rpc_pb2 as rpc
from dledger.etcdpb import rpc_pb2_grpc
from dledger.server.etcd.backend import StoreBackend
from dledger.server.etcd.headers import fill_header
from dledger.server.etcd.refusals import NO_LEADER, Context, Refusal, streaming, wants_leader

PROGRESS_INTERVAL_S = 600.0
PROGRESS_JITTER = 0.1
"""Of the interval, so that streams which came back together are not told together."""


class WatchService(rpc_pb2_grpc.WatchServicer):
    def __init__(
        self, backend: StoreBackend, random: Random, *, progress_interval_s: float = PROGRESS_INTERVAL_S
    ) -> None:
        self.backend = backend
        self._random = random
        self._progress_interval_s = progress_interval_s

    @streaming
    async def Watch(  # noqa: N802
        self, requests: AsyncIterator[rpc.WatchRequest], context: Context
    ) -> AsyncGenerator[rpc.WatchResponse, None]:
        stream = _Stream(self.backend, self._next_interval_s())
        tasks = [stream.begin(stream.take(requests), "watch requests")]
        if wants_leader(context):
            tasks.append(stream.begin(stream.end_without_leader(), "watch leader"))
        try:
            async for response in stream.responses():
                yield response
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            stream.close()

    def _next_interval_s(self) -> float:
        return self._progress_interval_s * (1 + self._random.random() * PROGRESS_JITTER)


class _Stream:
    """One stream: what wakes it, and when it ends. What is said on it is the hub's matter."""

    def __init__(self, backend: StoreBackend, progress_interval_s: float) -> None:
        self._backend = backend
        self._progress_interval_s = progress_interval_s
        self._awake = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._failure: BaseException | None = None
        self._watches = backend.watches.open(self._awake.set)
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(progress_interval_s, self._on_interval)

    def begin(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """What it raises ends the stream."""
        task = self._loop.create_task(work, name=name)
        task.add_done_callback(self._on_ended)
        return task

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (failure := task.exception()) is not None:
            self._failure = failure
            self._awake.set()

    def _on_interval(self) -> None:
        self._watches.notify_progress()
        self._timer = self._loop.call_later(self._progress_interval_s, self._on_interval)

    async def take(self, requests: AsyncIterator[rpc.WatchRequest]) -> None:
        """The next request is taken when the client has taken what there is to be told. One that says that it has no
        more requests still has its watches."""
        async for request in requests:
            match request.WhichOneof("request_union"):
                case "create_request":
                    self._watches.create(request.create_request)
                case "cancel_request":
                    self._watches.cancel(request.cancel_request.watch_id)
                case "progress_request":
                    self._watches.request_progress()
            if self._watches.is_ready:
                self._is_idle.clear()
                await self._is_idle.wait()

    async def end_without_leader(self) -> None:
        await self._backend.leader_lost()
        raise Refusal(NO_LEADER)

    async def responses(self) -> AsyncGenerator[rpc.WatchResponse, None]:
        while self._failure is None:
            while self._watches.is_ready and self._failure is None:
                response = self._watches.next()
                if response is None:
                    await asyncio.sleep(0)  # a piece of the history had nothing for it: others have their turn
                    continue
                fill_header(self._backend, response)
                yield response
            self._is_idle.set()
            self._awake.clear()
            if not self._watches.is_ready and self._failure is None:
                await self._awake.wait()
        raise self._failure

    def close(self) -> None:
        self._timer.cancel()
        self._watches.close()

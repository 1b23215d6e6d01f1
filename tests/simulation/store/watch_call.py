"""One stream of watches between a client and a node: it is slow at times, and ends with the node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from random import Random

from dledger.common.errors import DLedgerError
from dledger.etcdpb import rpc_pb2 as rpc
from tests.simulation.life import Life
from tests.simulation.process import GoneError
from tests.simulation.store.seat_store import THROUGH, SeatStore

WINDOW = 2
"""So many responses are under way at most: who is slow stops the node from sending."""


class WatchCall:
    """``take`` gets every response, in order, until the client closes the stream or it has ``ended``."""

    def __init__(
        self, life: Life, store: SeatStore, random: Random, take: Callable[[rpc.WatchResponse], None], slow_s: float
    ) -> None:
        """``slow_s``: how long the client takes over a response, on average."""
        self._world = life.host.cluster.world
        self._process = life.process
        self._store = store
        self._random = random
        self._take = take
        self._slow_s = slow_s
        self._is_closed = False
        self._arrives_s = 0.0
        self._under_way = 0
        self._task: asyncio.Task[object] | None = None
        self._requests: asyncio.Queue[rpc.WatchRequest] | None = None
        self._has_room: asyncio.Event | None = None
        self._least: dict[int, int] = {}
        """By watch: what the node had told when it was asked for it."""
        self._early: list[rpc.WatchRequest] = []
        self.ended = asyncio.Event()
        life.process.ask(self._serve).add_done_callback(self._on_end)

    # The client's side -------------------------------------------------------------------------------------------

    def send(self, request: rpc.WatchRequest) -> None:
        self._process.call_soon(self._put, request)

    def close(self) -> None:
        self._is_closed = True
        self._process.call_soon(self._cancel)

    def _on_end(self, served: asyncio.Future[None]) -> None:
        self.ended.set()
        failure = served.exception()
        if failure is not None and not isinstance(failure, GoneError | DLedgerError):
            self._world.fail(failure)

    def _deliver(self, response: rpc.WatchResponse) -> None:
        """On the wire now."""
        delay_s = self._random.expovariate(1000)
        if self._slow_s:
            delay_s += self._random.expovariate(1 / self._slow_s)
        self._arrives_s = max(self._world.time() + delay_s, self._arrives_s)
        self._world.call_at(self._arrives_s, self._arrive, response)

    def _arrive(self, response: rpc.WatchResponse) -> None:
        if self._is_closed or self.ended.is_set():
            return
        self._process.call_soon(self._took)
        try:
            self._take(response)
        except Exception as failure:  # noqa: BLE001 – a violation, as a rule
            self._world.fail(failure)

    # In the node's process ---------------------------------------------------------------------------------------

    async def _serve(self) -> None:
        self._task = asyncio.current_task()
        self._requests, self._has_room = asyncio.Queue(), asyncio.Event()
        for request in self._early:
            self._requests.put_nowait(request)
        async with aclosing(self._store.watches.Watch(self._asked(self._requests), THROUGH)) as responses:
            async for response in responses:
                if response.created:
                    self._store.tell(response.header.revision, self._least[response.watch_id])
                self._under_way += 1
                self._deliver(rpc.WatchResponse.FromString(response.SerializeToString()))
                while self._under_way >= WINDOW:
                    self._has_room.clear()
                    await self._has_room.wait()

    async def _asked(self, requests: asyncio.Queue[rpc.WatchRequest]) -> AsyncIterator[rpc.WatchRequest]:
        while True:
            request = await requests.get()
            self._least[request.create_request.watch_id] = self._store.least_revision
            yield request

    def _put(self, request: rpc.WatchRequest) -> None:
        if self._requests is None:
            self._early.append(request)
        else:
            self._requests.put_nowait(request)

    def _took(self) -> None:
        self._under_way -= 1
        if self._has_room is not None:
            self._has_room.set()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

"""Watches: every change of some keys, once and in order, over reconnects and the loss of nodes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

from dledger.client.store.refusals import store_error
from dledger.client.store.results import KeyValue, WatchBatch, WatchEvent
from dledger.client.store.stubs import StoreStubs
from dledger.common.errors import Code, DLedgerError, InvalidRequest, Unavailable, error
from dledger.common.store_errors import COMPACTED_TEXT, sentence_of
from dledger.etcdpb import kv_pb2
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.rpc.client.call_loop import CallLoop
from dledger.rpc.client.cancellation import client_closed
from dledger.rpc.client.retry import ASKS_ELSEWHERE, PASSING
from dledger.rpc.client.rpc_failure import RpcFailure

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncGenerator, AsyncIterator

    from dledger.client.store.keys import KeyRange
    from dledger.client.store.nodes import StoreNodes
    from dledger.rpc.client.channel import StreamCall

PROGRESS_S = 60.0
"""A watch that heard nothing for so long asks how far it is. So it can go on from there, however much is compacted."""
CREATE_S = 3.0
"""How long a node may take to begin a watch."""
STEADY_S = 1.0
"""A stream that lived so long was a good one: the next attempt is made at once."""
WITH_LEADER = (("hasleader", "true"),)
"""A node that lost the cluster ends the watch, instead of telling nothing."""


class Watch:
    """Used as ``async for batch in store.watch(prefix="jobs/"):``, for as long as the caller likes.

    The watch goes on by itself when its node is gone. Every change comes once, in the order of revisions, and no
    revision is split over two batches. The changes that begin the watch are those after the call of ``started``, or
    after the first batch was asked for; with ``start_revision`` those from this revision on.
    """

    def __init__(
        self,
        of: KeyRange,
        start_revision: int,
        *,
        wants_before: bool,
        nodes: StoreNodes,
        timeout_ms: float,
        rng: random.Random,
    ) -> None:
        self._of = of
        self._wants_before = wants_before
        self._nodes = nodes
        self._calls = CallLoop(timeout_ms, rng)
        self._loop = asyncio.get_running_loop()
        self.next_revision = start_revision
        """Everything before was told; 0: the watch has not begun, and will with the present."""
        self._call: StreamCall | None = None
        """A stream on which the node has begun the watch."""
        self._address = ""
        self._begun_s = 0.0
        self._is_closed = False

    async def started(self) -> int:
        """Returns once the watch has begun: the revision whose changes, and all later ones, it tells of."""
        if not self._address:
            self._calls.renew()
        while self._call is None:
            await self._begin()
        return self.next_revision

    def __aiter__(self) -> AsyncIterator[WatchBatch]:
        return self._batches()

    def close(self) -> None:
        """Ends it at its node. Iterating over it ends then."""
        self._is_closed = True
        self._drop()

    async def __aenter__(self) -> Self:
        await self.started()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def _batches(self) -> AsyncGenerator[WatchBatch]:
        """Raises Compacted when changes were missed because their history is gone, InvalidRequest for keys that cannot
        be watched, and Unavailable when no node served the watch for the call's time."""
        try:
            while not self._is_closed:
                batch = await self._next()
                if batch is not None:
                    yield batch
        except DLedgerError:
            if not self._is_closed:
                raise
        finally:
            self._drop()

    async def _next(self) -> WatchBatch | None:
        """None: there was something to hear, but nothing to tell."""
        await self.started()
        try:
            return self._taken(await self._whole())
        except RpcFailure as failure:
            await self._after(store_error(failure, self._address))
        except DLedgerError as refusal:
            await self._after(refusal)
        return None

    # Streams -----------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """One attempt to begin the watch at a node; waits behind a failure. Raises what will not pass."""
        self._check_open()
        call: StreamCall | None = None
        try:
            endpoint = await self._calls.bound(self._nodes.find())
            self._address = endpoint.address
            call = endpoint.stub(StoreStubs).watch.Watch(metadata=WITH_LEADER)
            async with asyncio.timeout(CREATE_S):
                await call.write(rpc.WatchRequest(create_request=self._request()))
                answer: rpc.WatchResponse | None = await call.read()
            self._take_created(answer)
        except TimeoutError:
            await self._after(error(Code.TIMEOUT, f"{self._address} did not begin the watch in time"), call)
        except RpcFailure as failure:
            await self._after(store_error(failure, self._address), call)
        except DLedgerError as refusal:
            await self._after(refusal, call)
        except BaseException:
            if call is not None:
                call.cancel()
            raise
        else:
            self._call, self._begun_s = call, self._loop.time()

    def _request(self) -> rpc.WatchCreateRequest:
        return rpc.WatchCreateRequest(
            key=self._of.key,
            range_end=self._of.end,
            start_revision=self.next_revision,
            prev_kv=self._wants_before,
            fragment=True,
        )

    def _take_created(self, answer: rpc.WatchResponse | None) -> None:
        if answer is None:
            raise Unavailable(f"{self._address} ended the watch")
        if not answer.created or answer.canceled:
            raise self._ended_by(answer)
        self.next_revision = self.next_revision or answer.header.revision + 1

    def _ended_by(self, answer: rpc.WatchResponse) -> DLedgerError:
        """The reason of a response that ends the watch."""
        if answer.compact_revision or answer.cancel_reason == COMPACTED_TEXT:
            text = sentence_of(Code.COMPACTED, answer.cancel_reason)
            told = f"the watch wants revision {self.next_revision}, and {text}"
            return error(Code.COMPACTED, told, compact_revision=answer.compact_revision)
        return InvalidRequest(f"the watch is refused: {answer.cancel_reason or 'the node does not say why'}")

    async def _after(self, refusal: DLedgerError, call: StreamCall | None = None) -> None:
        """The stream has ended, or did not come about. Raises unless another attempt is to be made; waits before it."""
        was_steady = self._call is not None and self._loop.time() > self._begun_s + STEADY_S
        if call is not None:
            call.cancel()
        self._drop()
        self._check_open()
        if was_steady:
            self._calls.progressed()
        if refusal.code in ASKS_ELSEWHERE:
            self._nodes.lost(self._address, refusal)
        if refusal.code not in PASSING:
            raise refusal
        self._calls.note(refusal)
        await self._calls.pause()
        if not self._calls.left_ms:
            raise self._calls.overdue()

    def _drop(self) -> None:
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _check_open(self) -> None:
        """Raises the error that makes going on useless."""
        self._nodes.check()
        if self._is_closed:
            raise client_closed()

    # Responses ---------------------------------------------------------------------------------------------------

    async def _whole(self) -> rpc.WatchResponse:
        """The next response, its fragments joined."""
        whole = await self._heard()
        while whole.fragment:
            part = await self._heard()
            whole.events.extend(part.events)
            whole.fragment = part.fragment
        return whole

    async def _heard(self) -> rpc.WatchResponse:
        """Asks for the progress when nothing comes for long. Raises RpcFailure, and Unavailable at the end."""
        while True:
            call = self._call
            if call is None:
                raise client_closed()
            try:
                async with asyncio.timeout(PROGRESS_S):
                    answer: rpc.WatchResponse | None = await call.read()
            except TimeoutError:
                await call.write(rpc.WatchRequest(progress_request=rpc.WatchProgressRequest()))
                continue
            if answer is None:
                raise Unavailable(f"{self._address} ended the watch")
            return answer

    def _taken(self, answer: rpc.WatchResponse) -> WatchBatch | None:
        if answer.canceled:
            raise self._ended_by(answer)
        events = tuple(_event(each) for each in answer.events if each.kv.mod_revision >= self.next_revision)
        if not events:
            self.next_revision = max(self.next_revision, answer.header.revision + 1)  # its progress
            return None
        # Not the header's: more may be on its way to a watch that is behind.
        self.next_revision = events[-1].revision + 1
        self._calls.progressed()
        return WatchBatch(events, self.next_revision - 1)


def _event(wire: Any) -> WatchEvent:
    before = KeyValue.from_wire(wire.prev_kv) if wire.HasField("prev_kv") else None
    return WatchEvent(KeyValue.from_wire(wire.kv), wire.type == kv_pb2.Event.DELETE, before)

"""StoreService: changes of the store that travel many to a stream, each carried out once. It translates; the store and
its sessions decide.

A stream holds nothing of its own. A client whose node is gone sends the same requests to another node, and the sessions
in the replicated state tell which were carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Protocol

from dledger.common.errors import Code, DLedgerError, error
from dledger.common.store_errors import CODES_BY_TEXT, sentence_of
from dledger.etcdpb import rpc_pb2 as rpc
from dledger.rpc.server.refusals import Context, streaming_in_context, typed_refusal, unary
from dledger.server.etcd.backend import StoreBackend
from dledger.server.etcd.headers import fill_header
from dledger.server.etcd.refusals import Refusal
from dledger.server.etcd.room import ensure_room
from dledger.statemachine.submitter import NOT_APPLIED
from dledger.store.commands import command
from dledger.store.quota import LEASE_COST_BYTES, cost_of_put, cost_of_txn
from dledger.store.refusals import StoreRefused
from dledger.v1 import store_service_pb2 as pb
from dledger.v1 import store_service_pb2_grpc

__all__ = ["NOT_APPLIED", "STORE_SERVICE", "SessionBackend", "StoreService"]

STORE_SERVICE = pb.DESCRIPTOR.services_by_name["StoreService"].full_name
MAX_IN_FLIGHT = 1_024
"""Requests of one stream that are worked on at a time: those of 16 sessions."""


class SessionBackend(StoreBackend, Protocol):
    """A backend whose state has sessions (dledger/statemachine/sessions.py)."""

    async def open_session(self) -> int:
        """Opens a session, and returns its id: never 0, and never used before. Raises the errors of the log; none of
        them leaves doubt, as nobody knows a session that was not returned."""

    async def submit_in_session(self, session: int, request: int, acknowledged: int, command: bytes) -> Any:
        """Returns what the store answered when the command was first carried out under this session and request.

        Raises StoreRefused if the store answered so, at any copy of it. Raises the errors of the log as they are, in
        their meaning: OutcomeUnknown if a copy that this call appended may be carried out yet. Raises SESSION_EXPIRED
        if the session is gone, with ``NOT_APPLIED`` in its metadata if no copy of this call's was carried out.
        """


class StoreService(store_service_pb2_grpc.StoreServiceServicer):
    def __init__(self, backend: SessionBackend) -> None:
        self.backend = backend

    @unary
    async def OpenSession(self, _request: pb.OpenSessionRequest) -> pb.OpenSessionResponse:  # noqa: N802
        return pb.OpenSessionResponse(session=await self.backend.open_session())

    @streaming_in_context
    async def Submit(  # noqa: N802
        self, requests: AsyncIterator[pb.SubmitRequest], _context: Context
    ) -> AsyncIterator[pb.SubmitResponse]:
        stream = _SubmitStream(self.backend)
        try:
            async for answer in stream.answers(requests):
                yield answer
        finally:
            stream.close()

    @unary
    async def Status(self, _request: pb.StoreServiceStatusRequest) -> pb.StoreServiceStatusResponse:  # noqa: N802
        await self.backend.until_there()
        await self.backend.barrier()
        store = self.backend.store
        return pb.StoreServiceStatusResponse(
            revision=store.pairs.revision,
            compact_revision=store.pairs.compact_revision,
            keys=len(store.pairs),
            size_bytes=store.pairs.size_bytes,
            leases=len(store.leases),
            watches=self.backend.watches.count(),
            hash=store.hash_kv(0).hash,
        )


class _SubmitStream:
    """Requests are begun in their order. Each has a task, so a slow one keeps nobody waiting."""

    def __init__(self, backend: SessionBackend) -> None:
        self._backend = backend
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Queue[pb.SubmitResponse | None] = asyncio.Queue()
        """None: there will be no more."""
        self._room = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._tasks: set[asyncio.Task[None]] = set()
        self._reader: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None

    async def answers(self, requests: AsyncIterator[pb.SubmitRequest]) -> AsyncIterator[pb.SubmitResponse]:
        """Raises what reading the requests raises."""
        self._reader = self._loop.create_task(self._read(requests), name="store-requests")
        self._reader.add_done_callback(self._on_read)
        while (answer := await self._ready.get()) is not None:
            yield answer
            self._room.release()
        if self._failure is not None:
            raise self._failure

    async def _read(self, requests: AsyncIterator[pb.SubmitRequest]) -> None:
        async for request in requests:
            check_numbers(request)
            await self._room.acquire()
            task = self._loop.create_task(self._answer(request), name="store-request")
            self._tasks.add(task)
            task.add_done_callback(self._on_answered)

    async def _answer(self, request: pb.SubmitRequest) -> None:
        self._ready.put_nowait(await answer_of(self._backend, request))

    def _on_read(self, reader: asyncio.Task[None]) -> None:
        if not reader.cancelled():
            self._failure = reader.exception()
        self._look()

    def _on_answered(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._failure = self._failure or bug
        self._look()

    def _look(self) -> None:
        has_read_all = self._reader is not None and self._reader.done() and not self._tasks
        if has_read_all or self._failure is not None:
            self._ready.put_nowait(None)

    def close(self) -> None:
        """The call has ended. What was submitted goes on: the client may ask for its answer again."""
        if self._reader is not None:
            self._reader.cancel()
        for task in self._tasks:
            task.cancel()


def check_numbers(request: pb.SubmitRequest) -> None:
    """Raises UNEXPECTED_ARGUMENT: a client that counts wrongly can be told of no request."""
    if not request.session or request.request <= request.acknowledged:
        text = f"request {request.request} of session {request.session}, acknowledged up to {request.acknowledged}"
        raise error(Code.UNEXPECTED_ARGUMENT, f"{text}: requests count from 1, and go beyond what is acknowledged")


async def answer_of(backend: SessionBackend, request: pb.SubmitRequest) -> pb.SubmitResponse:
    """An answer or a refusal: nothing that one request meets ends the stream of the others."""
    response = pb.SubmitResponse(session=request.session, request=request.request)
    try:
        await _carry_out(backend, request, response)
    except Exception as failure:  # noqa: BLE001  # every refusal is typed, a bug too
        response.refusal.CopyFrom(refusal_of(failure))
    return response


async def _carry_out(backend: SessionBackend, request: pb.SubmitRequest, response: pb.SubmitResponse) -> None:
    kind = request.WhichOneof("kind")
    if kind is None:
        raise error(Code.UNSUPPORTED, "the node does not know this kind of request: start the newer program")
    wanted = getattr(request, kind)
    if not backend.is_there:
        await backend.until_there()
    try:
        submitted = command(wanted)
        await ensure_room(backend, _cost_bytes(wanted))
    except StoreRefused as refused:
        raise _NotSubmitted(refused) from refused
    answer = await backend.submit_in_session(request.session, request.request, request.acknowledged, submitted)
    fill_header(backend, answer)
    getattr(response, kind).CopyFrom(answer)


def _cost_bytes(request: Any) -> int:
    match request:
        case rpc.PutRequest():
            return cost_of_put(request)
        case rpc.TxnRequest():
            return cost_of_txn(request)
        case rpc.LeaseGrantRequest():
            return LEASE_COST_BYTES
    return 0


class _NotSubmitted(Exception):
    """The node refused a request itself, with the store's words: no command was made of it now."""

    def __init__(self, refused: StoreRefused) -> None:
        super().__init__(str(refused))
        self.refused = refused


def refusal_of(failure: Exception) -> pb.SubmitRefusal:
    match failure:
        case _NotSubmitted():
            return _of_store(failure.refused, is_answer=False)
        case StoreRefused():
            return _of_store(failure, is_answer=True)
        case Refusal():
            refusal: DLedgerError = error(Code.UNSUPPORTED, failure.error.text)
        case _:
            refusal = typed_refusal(failure)
    return pb.SubmitRefusal(reason=refusal.code.name, message=str(refusal), metadata=refusal.metadata)


def _of_store(refused: StoreRefused, *, is_answer: bool) -> pb.SubmitRefusal:
    text = refused.code.text
    code = CODES_BY_TEXT[text]
    return pb.SubmitRefusal(reason=code.name, message=sentence_of(code, text), is_answer=is_answer)

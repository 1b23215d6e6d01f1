"""One call on the server: its messages come in (inbox.py), its handler runs, its answers go out (answering.py).

Handlers are those of ``grpc.aio``: ``async def`` with a request (or an iterator of requests) and a context. They return
an answer, yield answers, or write them to the context.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from dledger.common.futures import release
from dledger.common.http2_frames import ErrorCode, literal
from dledger.rpc.server.answering import ANSWERS_WAIT, GZIP_HEAD, HEAD, Answering
from dledger.rpc.server.context import Aborted, ServerContext
from dledger.rpc.server.holding import HoldingConnection
from dledger.rpc.server.inbox import Inbox
from dledger.rpc.server.request import Request
from dledger.rpc.server.running import Begun, in_a_task
from dledger.rpc.status import StatusCode
from dledger.rpc.wire import (
    PREFIX_BYTES,
    WireFault,
    is_one_message,
    status_fields,
)

logger = logging.getLogger(__name__)

NO_GRPC = b"This port takes gRPC: POST with the content type application/grpc.\n"
OK_TRAILERS = status_fields(0, "")
MAX_PATH_CHARS = 200
"""Of a path, in the refusal of a call."""


class ServerCall(Answering):
    __slots__ = (
        "_deadline",
        "_done_callbacks",
        "_inbox",
        "_max_message_bytes",
        "_received_bytes",
        "_task",
        "deadline_s",
        "peer",
    )

    def __init__(
        self, connection: HoldingConnection[Any], stream_id: int, request: Request, peer: str, max_message_bytes: int
    ) -> None:
        super().__init__(connection, stream_id, request)
        self.peer = peer
        self._max_message_bytes = max_message_bytes
        self.deadline_s: float | None = None
        """On the loop's clock."""
        self._inbox: Inbox | None = None
        """None as long as none is needed: a unary request in one piece needs none."""
        self._received_bytes = 0
        self._task: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        """Runs until the last byte of the answer has left."""
        self._done_callbacks: tuple[Callable[[], None], ...] = ()

    # What the client sends ---------------------------------------------------------------------------------------

    def begin(self, *, is_end: bool) -> None:
        """Its headers are there; ``is_end``: and nothing follows."""
        request = self.request
        if request.http_status != 200 or request.fault is not None or self._handler is None:
            if is_end or request.http_status == 200:
                self._refuse_headers()
            return
        if request.timeout_s is not None:
            loop = asyncio.get_running_loop()
            self.deadline_s = loop.time() + request.timeout_s
            self._deadline = loop.call_at(self.deadline_s, self._on_deadline)
        if self._handler.takes_stream:
            self._inbox = self._new_inbox()
            self._start(self._requests())
        if is_end:
            self.on_data(b"", is_end=True)

    def _refuse_headers(self) -> None:
        request = self.request
        if request.http_status != 200:
            self._is_answered = True
            self.connection.send_headers(self, literal(b":status", b"%d" % request.http_status))
            self.connection.send_data(self, (NO_GRPC,))
            self.connection.send_end(self)
        elif request.fault is not None:
            self._finish(request.fault.status, str(request.fault), request.fault.metadata)
        else:
            self._finish(StatusCode.UNIMPLEMENTED, f"there is no method {request.path[:MAX_PATH_CHARS]}")

    def on_headers(self, headers: Any, *, is_end: bool) -> None:
        if not is_end or isinstance(headers, Request):
            text = "trailers end the stream, and have no pseudo-header fields"
            self.connection.reset(self, ErrorCode.PROTOCOL_ERROR, text)
            return
        self.on_data(b"", is_end=True)

    def on_data(self, data: bytes, *, is_end: bool) -> None:
        self._received_bytes += len(data)
        if self.request.content_length is not None and not self._fits(is_end=is_end):
            self.connection.reset(self, ErrorCode.PROTOCOL_ERROR, "content-length says otherwise")
            return
        handler = self._handler
        if self._is_answered:
            return
        if handler is None or self.request.http_status != 200:
            self.consumed(len(data))
            if is_end:
                self._refuse_headers()
            return
        inbox = self._inbox
        if inbox is None:
            if is_end and is_one_message(data) and not handler.takes_stream:
                self._start_unary(data[PREFIX_BYTES:])
                return
            inbox = self._inbox = self._new_inbox()
        try:
            # A unary request may be larger than the window, so that it makes room as it comes.
            self.consumed(inbox.put(data, is_end=is_end, holds_window=handler.takes_stream))
        except WireFault as fault:
            self._give_up(fault.status, str(fault))
            return
        if not handler.takes_stream:
            self._take_unary(inbox, is_end=is_end)
        if not self._is_answered and (why := inbox.count()):
            self._give_up(StatusCode.RESOURCE_EXHAUSTED, why)

    def _new_inbox(self) -> Inbox:
        return Inbox(self._max_message_bytes, self.request.encoding, self.connection.held_requests)

    def _let_go(self) -> None:
        """Nothing of its requests is needed any more."""
        if self._inbox is not None:
            self._inbox.let_go()

    def _fits(self, *, is_end: bool) -> bool:
        length = self.request.content_length
        return length is not None and (self._received_bytes == length if is_end else self._received_bytes <= length)

    def _take_unary(self, inbox: Inbox, *, is_end: bool) -> None:
        if len(inbox) > 1 or (is_end and not inbox):
            self._finish(StatusCode.INTERNAL, f"one request is taken, not {len(inbox)}")
        elif is_end:
            message, _ = inbox.take()
            inbox.let_go()
            self._start_unary(message)

    def on_reset(self, code: ErrorCode, reason: str) -> None:
        """The client has cancelled it, or is gone; or it was answered before the client had sent all of it."""
        if not self._is_answered and self._task is not None:
            self._task.cancel()
        self._is_answered = True
        self._let_go()
        self._let_go_of_answer()
        self._stop_clock()
        self._wake()
        self._tell_done()

    def add_done_callback(self, callback: Callable[[], None]) -> None:
        """``callback`` is called when the call has ended, however it did."""
        self._done_callbacks = (*self._done_callbacks, callback)

    def _tell_done(self) -> None:
        callbacks, self._done_callbacks = self._done_callbacks, ()
        for callback in callbacks:
            asyncio.get_running_loop().call_soon(callback)

    def _wake(self) -> None:
        if self._inbox is not None:
            self._inbox.wake()
        release(self._waits_for_room)

    def _on_deadline(self) -> None:
        self._deadline = None
        if self.pending is not None:
            # The client does not take what is before the status: it knows the deadline itself.
            self.connection.reset(self, ErrorCode.CANCEL, "the call's time is up")
        else:
            self._give_up(StatusCode.DEADLINE_EXCEEDED, "the call's time is up")

    def _give_up(self, code: int, details: str) -> None:
        """Ends the call, and its handler."""
        self._finish(code, details)
        if self._task is not None:
            self._task.cancel()

    # The handler -------------------------------------------------------------------------------------------------

    def _start_unary(self, message: bytes) -> None:
        decode = self._handler.decode
        try:
            request = decode(message) if decode is not None else message
        except Exception as failure:  # noqa: BLE001 # if a decoder raises anything, the request is none
            self._finish(StatusCode.INTERNAL, f"the request cannot be decoded: {failure}")
            return
        self._start(request)

    def _start(self, request: Any) -> None:
        handler = self._handler
        context = self._context = ServerContext(self)
        try:
            work = handler.behaviour(request, context)
        except Exception as failure:  # noqa: BLE001  # a handler that is no ``async def``, as generated ones
            self._fail(failure)
            return
        if handler.gives_stream:
            self._run(self._streaming(work), work)
        elif handler.is_quick:
            self._begin_quickly(work)
        else:
            self._run(self._unary(work), work)

    def _run(self, run: Coroutine[Any, Any, None], work: Any) -> None:
        self._task = in_a_task(run, work)

    def _begin_quickly(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            waits_for = work.send(None)
        except StopIteration as end:
            self._answer(end.value)
        except BaseException as failure:  # noqa: BLE001 # any failure must end the call
            self._fail(failure)
        else:
            self._run(self._unary(Begun(work, waits_for)), work)

    async def _unary(self, work: Any) -> None:
        try:
            answer = await work
        except BaseException as failure:
            self._fail(failure)
            if isinstance(failure, (KeyboardInterrupt, SystemExit)):
                raise
        else:
            self._answer(answer)

    def _answer(self, answer: Any) -> None:
        """Encodes it, and sends all of it."""
        if self._is_answered:
            return
        context, encode = self._context, self._handler.encode
        assert context is not None
        if context.code is not None and context.code != 0:
            self._finish(context.code, context.details, context.trailers)
            return
        try:
            message = encode(answer) if encode is not None else answer
        except Exception as failure:  # noqa: BLE001  # a bug of the handler: it gave something else
            self._fail(failure)
            return
        try:
            trailers = status_fields(0, context.details, context.trailers) if context.has_trailers else OK_TRAILERS
        except ValueError as failure:
            self._fail(failure)
            return
        size = len(message) + PREFIX_BYTES
        if size > self.room_bytes and not self.connection.held.has_room_for_answer(size):
            self._finish(StatusCode.RESOURCE_EXHAUSTED, ANSWERS_WAIT)
            return
        self._is_answered = True
        self._let_go()
        self._send_answer(message, trailers)
        if self.pending is None:
            self._stop_clock()
        else:
            self._hold_answer()
        self._tell_done()

    def _send_answer(self, message: bytes, trailers: bytes) -> None:
        context = self._context
        assert context is not None
        if self.is_head_sent:
            self.connection.send_data(self, context.framed(message))
            self.connection.send_end(self, trailers)
        else:
            self.is_head_sent = True
            head = GZIP_HEAD if context.compresses else HEAD
            self.connection.send_unary(self, head, context.framed(message), trailers)

    async def _streaming(self, work: Any) -> None:
        """``work``: an asynchronous generator, or a coroutine that writes to the context."""
        try:
            if inspect.isasyncgen(work):
                try:
                    async for answer in work:
                        await self.write(answer)
                finally:
                    await work.aclose()
            else:
                await work
        except BaseException as failure:
            self._fail(failure)
            if isinstance(failure, (KeyboardInterrupt, SystemExit)):
                raise
        else:
            context = self._context
            assert context is not None
            self._finish(context.code or StatusCode.OK, context.details, context.trailers)

    def _fail(self, failure: BaseException) -> None:
        context = self._context
        assert context is not None
        if isinstance(failure, Aborted):
            self._finish(failure.code, failure.details, context.trailers)
        elif isinstance(failure, asyncio.CancelledError):
            self._finish(StatusCode.CANCELLED, "the call was cancelled")
        elif not self._is_answered:
            if context.code is None:
                logger.error("a call failed unexpectedly", exc_info=failure, extra={"method": self.request.path})
            text = context.details or f"unexpected {type(failure).__name__}: {failure}"
            self._finish(context.code or StatusCode.UNKNOWN, text, context.trailers)

    # Requests ----------------------------------------------------------------------------------------------------

    async def _requests(self) -> AsyncIterator[Any]:
        while (message := await self.read()) is not None:
            yield message

    async def read(self) -> Any:
        """The next request of a stream; None behind the last one. Raises CancelledError when the call is gone."""
        inbox, decode = self._inbox, self._handler.decode
        assert inbox is not None
        while not inbox:
            if self.is_reset:
                raise asyncio.CancelledError
            if self.is_remote_ended:
                return None
            await inbox.changed()
        message, size_bytes = inbox.take()
        inbox.count()
        self.consumed(size_bytes)
        return decode(message) if decode is not None else message

    # Answers -----------------------------------------------------------------------------------------------------

    def on_writable(self) -> None:
        self._let_go_of_answer()
        if self._is_answered:
            self._stop_clock()
        release(self._waits_for_room)

    def _finish(self, code: int, details: str, trailers: Any = ()) -> None:
        if self._is_answered:
            return
        self._is_answered = True
        self._let_go()
        try:
            block = status_fields(code, details, trailers)
        except ValueError:
            logger.exception("a handler gave trailers that cannot be sent")
            block = status_fields(StatusCode.INTERNAL, "the handler gave trailers that cannot be sent")
        if self.pending is None:
            self._stop_clock()
            self._let_go_of_answer()
        if self.is_head_sent:
            self.connection.send_end(self, block)
        else:
            self.connection.send_headers(self, HEAD + block, is_end=True)
        self._tell_done()

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

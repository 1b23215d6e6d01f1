"""Calls on the client: the messages sent and received, and the end."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from dledger.common.config import MIB
from dledger.common.futures import release
from dledger.common.http2_frames import ErrorCode
from dledger.rpc.client.answer import Answer
from dledger.rpc.client.rpc_failure import RpcFailure
from dledger.rpc.http2.connection import Http2Connection
from dledger.rpc.http2.stream import Stream
from dledger.rpc.status import StatusCode, status_of_reset
from dledger.rpc.wire import PREFIX_BYTES, Messages, Metadata, WireFault, is_one_message, prefixed

NO_GRPC = "what listens there does not speak gRPC"
MAX_ANSWER_BYTES = 64 * MIB
"""A message is bounded by the request and by the server's limits; this bounds the messages of a stranger."""
TIME_IS_UP = "the call's time is up"


class ClientCall(Stream):
    """Subclasses take the messages. ``on_end`` is called once, with None for OK."""

    __slots__ = ("_clock", "_is_ended", "_messages", "connection", "initial_metadata", "trailing_metadata")

    def __init__(self, connection: Http2Connection[Any], stream_id: int) -> None:
        super().__init__(connection, stream_id)
        self.connection = connection
        self._messages: Messages | None = None
        self._is_ended = False
        self._clock: asyncio.TimerHandle | None = None
        self.initial_metadata: Metadata = ()
        self.trailing_metadata: Metadata = ()

    def on_messages(self, messages: list[bytes], size_bytes: int) -> None:
        """``size_bytes`` of the window are to be given back when they are taken."""
        raise NotImplementedError

    def on_end(self, failure: RpcFailure | None) -> None:
        raise NotImplementedError

    def expire_at(self, deadline_s: float) -> None:
        self._clock = asyncio.get_running_loop().call_at(deadline_s, self._expire)

    def _expire(self) -> None:
        self._clock = None
        self.fail(RpcFailure(StatusCode.DEADLINE_EXCEEDED, TIME_IS_UP, is_local=True))

    @property
    def _is_overdue(self) -> bool:
        return self._clock is not None and asyncio.get_running_loop().time() >= self._clock.when()

    def cancel(self) -> None:
        """Ends it; the server is told. Nothing happens when it has ended."""
        self.fail(RpcFailure(StatusCode.CANCELLED, "the caller cancelled it", is_local=True))

    def fail(self, failure: RpcFailure) -> None:
        """This side gives it up."""
        if not self._is_ended:
            self._end(failure)
            self.connection.reset(self, ErrorCode.CANCEL)

    def _end(self, failure: RpcFailure | None) -> None:
        if not self._is_ended:
            self._is_ended = True
            if self._clock is not None:
                self._clock.cancel()
                self._clock = None
            self.on_end(failure)

    # Told by the connection --------------------------------------------------------------------------------------

    def on_headers(self, headers: Any, *, is_end: bool) -> None:
        answer: Answer = headers
        if answer.is_informational and not is_end:
            return
        if answer.status is not None or is_end:
            self.trailing_metadata = answer.metadata
            self._finish(answer, is_end=is_end)
            return
        self.initial_metadata = answer.metadata
        self._messages = Messages(MAX_ANSWER_BYTES, answer.encoding)

    def _finish(self, answer: Answer, *, is_end: bool) -> None:
        status, details = answer.status, answer.details
        if status is None:
            status, details = StatusCode.INTERNAL, "the server ended the call without a status"
        elif status is StatusCode.OK and self._messages is not None and not self._messages.is_between:
            status, details = StatusCode.INTERNAL, "the server ended the call within a message"
        is_known = answer.status is not None
        failure = (
            None if status is StatusCode.OK else RpcFailure(status, details, answer.metadata, is_local=not is_known)
        )
        self._end(failure)
        if not is_end or not self.is_local_ended:
            self.connection.reset(self, ErrorCode.NO_ERROR if is_end else ErrorCode.CANCEL)

    def on_data(self, data: bytes, *, is_end: bool) -> None:
        if self._is_ended:
            return
        if self._messages is None:
            self.fail(RpcFailure(StatusCode.INTERNAL, "the server sent data before headers", is_local=True))
            return
        try:
            found = self._messages.feed(data) if data else []
        except WireFault as fault:
            self.fail(RpcFailure(fault.status, str(fault), is_local=True))
            return
        if found:
            self.on_messages(found, len(data))
        else:
            self.consumed(len(data))
        if is_end:
            self._end(RpcFailure(StatusCode.INTERNAL, "the server ended the call without a status", is_local=True))

    def on_reset(self, code: ErrorCode, reason: str) -> None:
        connection = self.connection
        if connection.fault is not None and not connection.has_settings:
            text = f"cannot be reached: {NO_GRPC}"
            self._end(RpcFailure(StatusCode.UNAVAILABLE, text, was_sent=False, is_local=True))
            return
        status = StatusCode.UNAVAILABLE if connection.is_lost else status_of_reset(code)
        if status is StatusCode.CANCELLED and self._is_overdue:
            # The server keeps the same deadline, and was a moment earlier.
            status, reason = StatusCode.DEADLINE_EXCEEDED, TIME_IS_UP
        was_sent = code is not ErrorCode.REFUSED_STREAM
        self._end(RpcFailure(status, reason, was_sent=was_sent, is_local=True))


class UnaryCall(ClientCall):
    """One answer. ``answered`` has its bytes, or an RpcFailure."""

    __slots__ = ("_answer", "answered")

    def __init__(self, connection: Http2Connection[Any], stream_id: int) -> None:
        super().__init__(connection, stream_id)
        self.answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._answer: bytes | None = None

    def on_data(self, data: bytes, *, is_end: bool) -> None:
        messages = self._messages
        is_first = self._answer is None and messages is not None and messages.is_between and not is_end
        if is_first and is_one_message(data):
            self._answer = data[PREFIX_BYTES:]
            self.consumed(len(data))
        else:
            super().on_data(data, is_end=is_end)

    def on_messages(self, messages: list[bytes], size_bytes: int) -> None:
        self.consumed(size_bytes)
        if self._answer is not None or len(messages) > 1:
            self.fail(RpcFailure(StatusCode.INTERNAL, "more than one answer", is_local=True))
            return
        self._answer = messages[0]

    def on_end(self, failure: RpcFailure | None) -> None:
        if self.answered.done():
            return
        if failure is not None:
            self.answered.set_exception(failure)
        elif self._answer is None:
            text = "the server answered OK without an answer"
            self.answered.set_exception(RpcFailure(StatusCode.INTERNAL, text, is_local=True))
        else:
            self.answered.set_result(self._answer)


class StreamingCall(ClientCall):
    """Answers, or requests, or both, one after the other."""

    __slots__ = ("_failure", "_inbox", "_room", "_waits")

    def __init__(self, connection: Http2Connection[Any], stream_id: int) -> None:
        super().__init__(connection, stream_id)
        self._inbox: deque[tuple[bytes, int]] = deque()
        self._failure: RpcFailure | None = None
        self._waits: asyncio.Future[None] | None = None
        self._room: asyncio.Future[None] | None = None

    def on_messages(self, messages: list[bytes], size_bytes: int) -> None:
        self._inbox += [(message, 0) for message in messages[:-1]]
        self._inbox.append((messages[-1], size_bytes))
        release(self._waits)

    def on_end(self, failure: RpcFailure | None) -> None:
        self._failure = failure
        release(self._waits)
        release(self._room)

    def on_writable(self) -> None:
        release(self._room)

    async def read(self) -> bytes | None:
        """The next answer; None behind the last one. Raises RpcFailure when the call did not end well."""
        while not self._inbox:
            if self._failure is not None:
                raise self._failure
            if self._is_ended:
                return None
            self._waits = asyncio.get_running_loop().create_future()
            await self._waits
        message, size_bytes = self._inbox.popleft()
        self.consumed(size_bytes)
        return message

    async def write(self, message: bytes) -> None:
        """Returns when there is room for the next one. Raises RpcFailure when the call has ended."""
        self._check_writable()
        self.connection.send_data(self, prefixed(message))
        while self.pending is not None and not self._is_ended:
            self._room = asyncio.get_running_loop().create_future()
            await self._room
        self._check_writable()

    def _check_writable(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._is_ended:
            raise RpcFailure(StatusCode.CANCELLED, "the call has ended", is_local=True)

    def done_writing(self) -> None:
        """No further request follows."""
        if not self._is_ended:
            self.connection.send_end(self)

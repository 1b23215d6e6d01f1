"""The answering half of a call on the server: answers go out as the client takes them."""

from __future__ import annotations

import asyncio
from typing import Any

from dledger.common.http2_frames import literal
from dledger.rpc.http2.stream import Stream
from dledger.rpc.server.context import ServerContext
from dledger.rpc.server.holding import HoldingConnection
from dledger.rpc.server.remade import Remade
from dledger.rpc.server.request import Request
from dledger.rpc.status import StatusCode
from dledger.rpc.wire import CONTENT_TYPE, PREFIX_BYTES, metadata_block

HEAD = b"\x88" + b"\x0f\x10" + bytes((len(CONTENT_TYPE),)) + CONTENT_TYPE
"""``:status: 200`` and the content type, by their places in HPACK's static table."""
GZIP_HEAD = HEAD + literal(b"grpc-encoding", b"gzip")
ANSWERS_WAIT = "the answers that clients do not take fill the node's memory: ask again, and read what was asked for"
TURN_BYTES = 64 * 1024
"""A stream that has more to say lets others have their turn after so much."""
KEPT_BYTES = 448
"""The server keeps so much of an answer after its turn, to see when the client goes on. So little comes from Python's
own allocator. A larger piece would settle in the room of the answer, and the next answer would not fit there."""


class Answering(Stream):
    __slots__ = (
        "_context",
        "_handler",
        "_held_answer_bytes",
        "_is_answered",
        "_missing_bytes",
        "_turn_bytes",
        "_turn_held_bytes",
        "_waits_for_room",
        "connection",
        "is_head_sent",
        "request",
    )

    def __init__(self, connection: HoldingConnection[Any], stream_id: int, request: Request) -> None:
        super().__init__(connection, stream_id)
        self.connection = connection
        self.request = request
        self._handler = request.handler
        self._context: ServerContext | None = None
        self.is_head_sent = False
        self._is_answered = False
        """Its status is sent, or it is gone."""
        self._held_answer_bytes = 0
        """Of an answer that cannot be made anew."""
        self._turn_held_bytes = 0
        """Of one that can (turns.py)."""
        self._missing_bytes = 0
        """At the end of such an answer: they are to be made anew."""
        self._turn_bytes = 0
        self._waits_for_room: asyncio.Future[None] | None = None

    def _finish(self, code: int, details: str, trailers: Any = ()) -> None:
        """The status, behind what is pending."""
        raise NotImplementedError

    async def write(self, answer: Any) -> None:
        """Returns when there is room for the next one. Raises CancelledError when the call is gone."""
        if self._is_answered or self.is_reset:
            raise asyncio.CancelledError
        message = self._encoded(answer)
        size = len(message) + PREFIX_BYTES
        self.send_head()
        assert self._context is not None
        self.connection.send_data(self, self._context.framed(message))
        del message  # what waits is held by the connection alone
        if self.pending is None:
            self._let_go_of_answer()
        else:
            await self._until_sent(answer)
        self._turn_bytes += size
        if self._turn_bytes >= TURN_BYTES:
            self._turn_bytes = 0
            await asyncio.sleep(0)

    def _encoded(self, answer: Any) -> bytes:
        encode = self._handler.encode
        message: bytes = encode(answer) if encode is not None else answer
        if isinstance(answer, Remade):
            answer.drop()
        return message

    async def _until_sent(self, answer: Any) -> None:
        """Of an answer: returns when the client has taken all of it."""
        held = self.connection.held
        while self.pending is not None:
            if isinstance(answer, Remade):
                self._hold_turn(self.pending_bytes)
                held.turns.waits_for_client(self)
            elif held.has_room_for_answer(self.pending_bytes):
                self._hold_answer()
            else:
                self._finish(StatusCode.RESOURCE_EXHAUSTED, ANSWERS_WAIT)
                raise asyncio.CancelledError
            await self._room()
            missing, self._missing_bytes = self._missing_bytes, 0
            if missing:
                await self._send_rest(answer, missing)

    async def _send_rest(self, answer: Remade, size_bytes: int) -> None:
        """The end of an answer, after its turn was over too early."""
        await self.turn()
        await self._restore(answer)
        assert self._context is not None
        rest = memoryview(b"".join(self._context.framed(self._encoded(answer))))[-size_bytes:]
        self.connection.send_data(self, (rest,))

    async def _restore(self, answer: Remade) -> None:
        try:
            await answer.restore()
        except Exception as failure:  # whatever it is, the message cannot be ended
            self._finish(StatusCode.UNAVAILABLE, f"the rest of a message cannot be had any more: {failure}")
            raise asyncio.CancelledError from failure
        if self.is_reset or self._is_answered:
            raise asyncio.CancelledError

    async def turn(self) -> int:
        """Returns when there is room for a large answer: so many bytes of it the client takes at once. Raises
        CancelledError when the call is gone."""
        if not self._turn_held_bytes:
            self._turn_held_bytes = await self.connection.held.turns.begin()
            if self.is_reset or self._is_answered:
                self._hold_turn(0)
                raise asyncio.CancelledError
        return self.room_bytes

    def give_up_rest(self) -> None:
        """The client does not take the answer: the server keeps little of it, and the handler makes the rest anew."""
        self._missing_bytes += self.connection.keep_pending(self, KEPT_BYTES)
        self._hold_turn(0)

    def on_blocked(self) -> None:
        self.connection.held.turns.on_blocked(self)

    @property
    def is_blocked(self) -> bool:
        return self.room_bytes <= 0

    def _hold_turn(self, size_bytes: int) -> None:
        """So much is held in its turn. 0: the turn has ended."""
        more, self._turn_held_bytes = size_bytes - self._turn_held_bytes, size_bytes
        turns = self.connection.held.turns
        if not size_bytes:
            turns.waits_no_more(self)
        if more:
            turns.hold(more)

    @property
    def room_bytes(self) -> int:
        """The client takes so much at once."""
        return min(self.send_window, self.connection.send_window)

    def _hold_answer(self) -> None:
        more, self._held_answer_bytes = self.pending_bytes - self._held_answer_bytes, self.pending_bytes
        self.connection.held.answer_bytes += more

    def _let_go_of_answer(self) -> None:
        self.connection.held.answer_bytes -= self._held_answer_bytes
        self._held_answer_bytes = 0
        if self._turn_held_bytes:
            self._hold_turn(0)

    async def _room(self) -> None:
        while self.pending is not None and not self.is_reset:
            self._waits_for_room = asyncio.get_running_loop().create_future()
            await self._waits_for_room
        if self.is_reset:
            raise asyncio.CancelledError

    def send_head(self) -> None:
        """The initial metadata, unless they are sent already."""
        if not self.is_head_sent and not self.is_reset:
            self.is_head_sent = True
            context = self._context
            assert context is not None
            head = GZIP_HEAD if context.compresses else HEAD
            self.connection.send_headers(self, head + metadata_block(context.initial) if context.initial else head)

"""One pipelined stream, from its first message to its end: a task writes, a task watches, the caller's hears."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from dledger.common.errors import InternalError, Unavailable
from dledger.rpc.client.failures import from_rpc
from dledger.rpc.client.rpc_failure import RpcFailure

if TYPE_CHECKING:
    from dledger.common.errors import DLedgerError
    from dledger.rpc.client.channel import StreamCall

SILENCE_CHECK_S = 0.6
"""A stream without an answer for so long makes us ask the others whether there is another leader."""
SILENCE_CHECKS = 12
"""After so many in a row it is given up, under any leader."""

Request = TypeVar("Request")
Answer = TypeVar("Answer")


Said_co = TypeVar("Said_co", covariant=True)
Heard_contra = TypeVar("Heard_contra", contravariant=True)


class StreamHandler(Protocol[Said_co, Heard_contra]):
    """Makes the requests, and settles them by the answers."""

    @property
    def waiting(self) -> bool:
        """Whether an answer is due."""

    async def next_request(self) -> Said_co:
        """The next message, when there is one and room in the window for it."""

    def settle(self, answer: Heard_contra) -> DLedgerError | None:
        """Takes the answer to the oldest message; a refusal ends the stream, and so does raising InternalError."""


class Leadership(Protocol):
    """A stream's questions about the node it goes to, while the node answers nothing."""

    @property
    def in_conflict(self) -> bool:
        """Whether the client's endpoints turned out to be of two clusters: then no stream goes on."""

    async def moved_on(self, address: str) -> bool:
        """Whether another node than ``address`` is said to lead in a later term."""


class PipelinedStream(Generic[Request, Answer]):
    """A stream to ``address``. Ends with the first refusal, or when it is given up because nothing is answered.

    ``leaders`` is None for a stream to a node that was asked for by name: it is left only after a long silence.
    """

    def __init__(
        self,
        call: StreamCall,
        address: str,
        talker: StreamHandler[Request, Answer],
        leaders: Leadership | None,
    ) -> None:
        self._call = call
        self._address = address
        self._talker = talker
        self._leaders = leaders
        self._answers = 0
        self._is_given_up = False

    async def hold(self) -> DLedgerError:
        """Talks until the stream ends, and returns why it did."""
        helpers = [
            asyncio.create_task(self._write(), name=f"dledger-write {self._address}"),
            asyncio.create_task(self._watch(), name=f"dledger-watch {self._address}"),
        ]
        for task in helpers:
            task.add_done_callback(self._give_up)
        try:
            return await self._hear()
        finally:
            for task in helpers:
                task.cancel()
            await asyncio.wait(helpers)
            self._call.cancel()
            for task in helpers:
                if not task.cancelled() and (bug := task.exception()) is not None:
                    raise bug

    def _give_up(self, _: asyncio.Task[None]) -> None:
        """One of the helpers has ended: nothing more is written, or no answer is waited for."""
        self._is_given_up = True
        self._call.cancel()

    async def _hear(self) -> DLedgerError:
        call, settle = self._call, self._talker.settle
        try:
            while True:
                answer = await call.read()
                if answer is None:
                    return Unavailable(f"{self._address} ended the stream")
                self._answers += 1
                refusal = settle(answer)
                if refusal is not None:
                    return refusal
        except RpcFailure as failure:
            if self._is_given_up:
                return Unavailable(f"{self._address} stopped answering")
            return from_rpc(failure, self._address)
        except InternalError as misfit:
            return misfit

    async def _write(self) -> None:
        try:
            while True:
                await self._call.write(await self._talker.next_request())
        except RpcFailure:
            return  # The stream has ended; the side that hears the answers knows why.

    async def _watch(self) -> None:
        """Gives the stream up when nothing is answered while another node leads, or for too long."""
        answers, silent = self._answers, 0
        while True:
            waiting = self._talker.waiting
            await asyncio.sleep(SILENCE_CHECK_S)
            if self._leaders is not None and self._leaders.in_conflict:
                return
            if not waiting or not self._talker.waiting or answers != self._answers:
                answers, silent = self._answers, 0
                continue
            silent += 1
            if silent >= SILENCE_CHECKS or (self._leaders and await self._leaders.moved_on(self._address)):
                return

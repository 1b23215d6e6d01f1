"""What etcd's clients are told when something is refused: its statuses, with its words."""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar

import grpc

from dledger.common.errors import CODES, Code, DLedgerError
from dledger.rpc.server.refusals import typed_refusal
from dledger.server.etcd.backend import StoreBackend
from dledger.store.refusals import StoreRefused

Request = TypeVar("Request")
Response = TypeVar("Response")
Context = grpc.aio.ServicerContext[Any, Any]


class EtcdError(NamedTuple):
    status: str
    text: str


class Refusal(Exception):
    """Raised by a service: the call ends with it."""

    def __init__(self, error: EtcdError) -> None:
        super().__init__(error.text)
        self.error = error


NO_LEADER = EtcdError("UNAVAILABLE", "etcdserver: no leader")
NOT_LEADER = EtcdError("FAILED_PRECONDITION", "etcdserver: not leader")
TIMED_OUT = EtcdError("UNAVAILABLE", "etcdserver: request timed out")
STOPPED = EtcdError("UNAVAILABLE", "etcdserver: server stopped")
LEADER_CHANGED = EtcdError("UNAVAILABLE", "etcdserver: leader changed")
BAD_LEADER_TRANSFEREE = EtcdError("FAILED_PRECONDITION", "etcdserver: bad leader transferee")
TOO_MANY_REQUESTS = EtcdError("RESOURCE_EXHAUSTED", "etcdserver: too many requests")

_OF_CODES = {
    Code.NOT_LEADER: NO_LEADER,
    Code.LEADER_NOT_READY: NO_LEADER,
    Code.LEADER_TRANSFERRING: LEADER_CHANGED,
    Code.LEADER_PENDING_FULL: TOO_MANY_REQUESTS,
    Code.NETWORK_ERROR: NO_LEADER,
    Code.SHUTTING_DOWN: STOPPED,
    Code.TIMEOUT: TIMED_OUT,
    Code.WAIT_QUORUM_ACK_TIMEOUT: TIMED_OUT,
    Code.TERM_CHANGED: LEADER_CHANGED,
    Code.SESSION_EXPIRED: TIMED_OUT,
}
"""A client of etcd's tries again at UNAVAILABLE; where a write's outcome is unknown, it knows that from these too."""
HAS_LEADER = ("hasleader", "true")
"""In a call's metadata: rather refuse it than serve it without a leader."""


class _Service(Protocol):
    @property
    def backend(self) -> StoreBackend: ...


def etcd_error(failure: Exception) -> EtcdError:
    if isinstance(failure, Refusal):
        return failure.error
    if isinstance(failure, StoreRefused):
        return EtcdError(failure.code.status, failure.code.text)
    refusal: DLedgerError = typed_refusal(failure)
    return _OF_CODES.get(refusal.code) or EtcdError(CODES[refusal.code].grpc_status, f"dledger: {refusal}")


def wants_leader(context: Context) -> bool:
    return any(tuple(pair) == HAS_LEADER for pair in context.invocation_metadata() or ())


def check_leader(backend: StoreBackend, context: Context) -> None:
    """Raises Refusal."""
    if not backend.leader_id and wants_leader(context):
        raise Refusal(NO_LEADER)


def unary(
    method: Callable[[Any, Request], Awaitable[Response]],
) -> Callable[[Any, Request, Context], Awaitable[Response]]:
    """Makes a gRPC method of one that takes the request alone."""

    @functools.wraps(method)
    async def call(self: _Service, request: Request, context: Context) -> Response:
        try:
            check_leader(self.backend, context)
            if not self.backend.is_there:
                await self.backend.until_there()
            return await method(self, request)
        except Exception as failure:  # noqa: BLE001 – every refusal is typed, a bug too
            await _refuse(context, failure)

    return call


def streaming(
    method: Callable[[Any, Request, Context], AsyncGenerator[Response, None]],
) -> Callable[[Any, Request, Context], AsyncGenerator[Response, None]]:
    """The same for a method that answers with a stream; ``Request`` may be an iterator of requests."""

    @functools.wraps(method)
    async def call(self: _Service, request: Request, context: Context) -> AsyncGenerator[Response, None]:
        try:
            check_leader(self.backend, context)
            if not self.backend.is_there:
                await self.backend.until_there()
            # Closed with the call: what a stream holds is not left to the collector of garbage.
            async with aclosing(method(self, request, context)) as responses:
                async for response in responses:
                    yield response
        except Exception as failure:  # noqa: BLE001 – every refusal is typed, a bug too
            await _refuse(context, failure)

    return call


async def _refuse(context: Context, failure: Exception) -> NoReturn:
    error = etcd_error(failure)
    await context.abort(getattr(grpc.StatusCode, error.status), error.text)

"""Between the services and gRPC: a typed refusal becomes a status with an ErrorInfo that any client can read."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote

import grpc
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from dledger.common.errors import CODES, ERROR_DOMAIN, Code, DLedgerError, InternalError, error
from dledger.common.limited_log import LimitedLog
from dledger.common.types import Consistency
from dledger.rpc.hops import leader_metadata
from dledger.v1 import log_pb2

logger = logging.getLogger(__name__)
_limited_log = LimitedLog(logger)

Request = TypeVar("Request")
Response = TypeVar("Response")
Service = TypeVar("Service")
Turn = Callable[[], Awaitable[int]] | None
"""Awaited before a large answer is made (``ServerContext.turn``); None: gRPC's own library has none."""
Context = grpc.aio.ServicerContext[Any, Any]


_ASK_ANOTHER = frozenset({Code.CORRUPT_LOG, Code.DIVERGED})


def consistency_of(value: int) -> Consistency:
    """An unknown one, from a newer client, gets the stronger promise."""
    return Consistency.COMMITTED if value == log_pb2.CONSISTENCY_COMMITTED else Consistency.LINEARIZABLE


async def refuse(context: Context, refusal: DLedgerError) -> NoReturn:
    """Ends the call with the refusal's status and details."""
    if logger.isEnabledFor(logging.DEBUG):
        fields = {"code": refusal.code.value, "why": str(refusal), "caller": caller_of(context.peer())}
        _limited_log.say(logging.DEBUG, refusal.code.value, time.monotonic(), "a call is refused", **fields)
    code = getattr(grpc.StatusCode, CODES[refusal.code].grpc_status)
    info = error_details_pb2.ErrorInfo(reason=refusal.code.value, domain=ERROR_DOMAIN, metadata=refusal.metadata)
    detail = any_pb2.Any()
    detail.Pack(info)
    status = status_pb2.Status(code=code.value[0], message=str(refusal), details=[detail])
    metadata = (("grpc-status-details-bin", status.SerializeToString()), *leader_metadata(refusal))
    await context.abort(code, str(refusal), trailing_metadata=metadata)


def typed_refusal(failure: Exception) -> DLedgerError:
    """What the caller is told: a bug is INTERNAL_ERROR, with its trace in the log.

    A log that is damaged is this node's trouble, not the caller's: others hold the same bytes, and he is to go there.
    """
    if isinstance(failure, DLedgerError):
        if failure.code in _ASK_ANOTHER:
            return error(Code.SHUTTING_DOWN, f"this node's log is damaged; ask another ({failure})")
        return failure
    logger.error("a call failed unexpectedly", exc_info=failure)
    return InternalError(f"unexpected {type(failure).__name__}; see the node's log")


class Undecodable:
    """Stands for a request that is none: a look at any field of it raises UNEXPECTED_ARGUMENT."""

    def __init__(self, why: DecodeError) -> None:
        self._refusal = error(Code.UNEXPECTED_ARGUMENT, f"the request is not what this method takes: {why}")

    def __getattr__(self, name: str) -> NoReturn:
        raise self._refusal


class TypedRegistry:
    """In place of the server where a service is added to it. gRPC answers a request that cannot be decoded itself, with
    an untyped UNKNOWN and a trace in the log. Behind this it is refused like any other.

    Answers of a stream that are encoded already, as another node gave them, go out as they are."""

    def __init__(
        self,
        server: grpc.aio.Server,
        decoders: Mapping[str, Callable[[bytes], Any]] | None = None,
        encoders: Mapping[str, Callable[[Any], bytes]] | None = None,
    ) -> None:
        """``decoders`` of requests and ``encoders`` of answers: by method, those that do otherwise than the generated
        code."""
        self._server = server
        self._decoders = decoders or {}
        self._encoders = encoders or {}

    def add_generic_rpc_handlers(self, _handlers: object) -> None:
        """The generated code hands over the same handlers twice: here, and in a form that can be looked into."""

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Any]) -> None:
        typed = {name: self._typed(name, handler) for name, handler in handlers.items()}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, typed),))

    def _typed(self, name: str, handler: Any) -> Any:
        decode = self._decoders.get(name, handler.request_deserializer)
        encode = self._encoders.get(name, handler.response_serializer)

        def try_to_decode(data: bytes) -> Any:
            try:
                return decode(data)
            except DecodeError as why:
                return Undecodable(why)

        def encode_or_pass(answer: Any) -> bytes:
            return answer if isinstance(answer, bytes) else encode(answer)

        serializer = encode_or_pass if handler.response_streaming else encode
        return handler._replace(request_deserializer=try_to_decode, response_serializer=serializer)


def unary_in_context(
    method: Callable[[Service, Request, Context], Awaitable[Response]],
) -> Callable[[Service, Request, Context], Awaitable[Response]]:
    """Makes a gRPC method of one that raises typed errors."""

    @functools.wraps(method)
    async def call(self: Service, request: Request, context: Context) -> Response:
        try:
            return await method(self, request, context)
        except Exception as failure:  # noqa: BLE001 – every refusal is typed, a bug too
            await refuse(context, typed_refusal(failure))

    return call


def unary(
    method: Callable[[Service, Request], Awaitable[Response]],
) -> Callable[[Service, Request, Context], Awaitable[Response]]:
    """As ``unary_in_context``, for a method that takes the request alone."""

    @functools.wraps(method)
    def without_context(self: Service, request: Request, _context: Context) -> Awaitable[Response]:
        return method(self, request)

    return unary_in_context(without_context)


def unary_with_caller(
    method: Callable[[Service, Request, str], Awaitable[Response]],
) -> Callable[[Service, Request, Context], Awaitable[Response]]:
    """As ``unary_in_context``, for a method that takes the caller's address (``caller_of``)."""

    @functools.wraps(method)
    def with_caller(self: Service, request: Request, context: Context) -> Awaitable[Response]:
        return method(self, request, caller_of(context.peer()))

    return unary_in_context(with_caller)


def caller_of(peer: str) -> str:
    """What gRPC calls ``ipv4:10.0.0.1:5000`` or ``ipv6:%5B::1%5D:5000``, as host:port."""
    kind, _, address = peer.partition(":")
    return unquote(address) if kind in ("ipv4", "ipv6") else peer


def streaming_in_context(
    method: Callable[[Service, Request, Context], AsyncIterator[Response]],
) -> Callable[[Service, Request, Context], AsyncIterator[Response]]:
    """As ``unary_in_context``, for a method that answers with a stream; ``Request`` may be an iterator of requests."""

    @functools.wraps(method)
    async def call(self: Service, request: Request, context: Context) -> AsyncIterator[Response]:
        try:
            async for response in method(self, request, context):
                yield response
        except Exception as failure:  # noqa: BLE001 – every refusal is typed, a bug too
            await refuse(context, typed_refusal(failure))

    return call


def turn_of(context: Any) -> Turn:
    """For a method whose answers are large: it awaits the turn before it makes one."""
    turn: Turn = getattr(context, "turn", None)
    return turn

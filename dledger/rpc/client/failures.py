"""From gRPC's errors to ours: the ErrorInfo of a refusal names the code; without one the status has to do."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, TypeVar

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from dledger.common.errors import CODES, ERROR_DOMAIN, Code, DLedgerError, error
from dledger.common.http2_refusal import WRONG_PORT
from dledger.rpc.client.cancellation import cancellations, client_closed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from grpc import aio

    from dledger.rpc.client.channels import Endpoint

Request = TypeVar("Request")
Response = TypeVar("Response")

_DETAILS_KEY = "grpc-status-details-bin"
_GRPC_OWN_SIZE_LIMIT = "message larger than max"
_GRPC_NO_CONNECTION = "failed to connect"
_GRPC_NO_ADDRESS = ("DNS resolution failed", "errors resolving")
_GRPC_CONNECT_FAILED = re.compile(r"to remote host: (connect: )?(?P<why>[^:()]+\w)")
_GRPC_LAST_ERROR = re.compile(r".*last error: [A-Z_]+: (ipv[46]:\S+: )?", re.DOTALL)
_GRPC_OTHER_PROTOCOL = "Failed parsing HTTP/2"
_SENT = "sent"
_SAID_BY = "said_by"
_GRPC = "grpc"

_BY_STATUS: dict[grpc.StatusCode, Code] = {
    grpc.StatusCode.UNAVAILABLE: Code.NETWORK_ERROR,
    grpc.StatusCode.CANCELLED: Code.NETWORK_ERROR,
    grpc.StatusCode.INVALID_ARGUMENT: Code.UNEXPECTED_ARGUMENT,
    grpc.StatusCode.OUT_OF_RANGE: Code.INDEX_OUT_OF_RANGE,
    grpc.StatusCode.NOT_FOUND: Code.UNKNOWN_GROUP,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Code.LEADER_PENDING_FULL,
    grpc.StatusCode.ABORTED: Code.TERM_CHANGED,
    grpc.StatusCode.DATA_LOSS: Code.CORRUPT_LOG,
    grpc.StatusCode.PERMISSION_DENIED: Code.UNEXPECTED_MEMBER,
    grpc.StatusCode.UNAUTHENTICATED: Code.UNEXPECTED_MEMBER,
}


def from_rpc(failure: aio.AioRpcError, address: str) -> DLedgerError:
    """The typed error of a failed call to ``address``."""
    info = _error_info(failure)
    message = failure.details() or failure.code().name
    if info is not None:
        code = code_named(info.reason)
        if code is not None:
            if code is Code.NOT_LEADER and info.metadata.get("leader_address") == address:
                message = f"{message}; several nodes tell clients this one address: give each an --advertise of its own"
            return CODES[code].exception(message, code=code, metadata=info.metadata)
    refusal = _by_status(failure.code(), message, address)
    refusal.metadata[_SAID_BY] = _GRPC
    return refusal


def _by_status(status: grpc.StatusCode, message: str, address: str) -> DLedgerError:
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED and _GRPC_OWN_SIZE_LIMIT in message:
        return error(Code.BATCH_TOO_LARGE, f"{address} does not take messages of this size: {message}")
    if status is grpc.StatusCode.UNAVAILABLE and message.startswith(_GRPC_NO_CONNECTION):
        return error(Code.NETWORK_ERROR, f"{address} cannot be reached: {_in_words(message)}", **{_SENT: "no"})
    if status is grpc.StatusCode.UNAVAILABLE and message.startswith(_GRPC_NO_ADDRESS):
        text = f"{address} cannot be reached: its name cannot be looked up here ({message})"
        return error(Code.NETWORK_ERROR, text, **{_SENT: "no"})
    if status is grpc.StatusCode.UNIMPLEMENTED and WRONG_PORT.fullmatch(message):
        return error(Code.UNSUPPORTED, f"{address} cannot be asked: {message}", **{_SENT: "no"})
    if status is grpc.StatusCode.UNIMPLEMENTED:
        text = f"{address} does not know this call: it runs an earlier version, or is no dledger node ({message})"
        return error(Code.UNSUPPORTED, text, **{_SENT: "no"})
    if status is grpc.StatusCode.DEADLINE_EXCEEDED:
        return error(Code.TIMEOUT, f"{address} did not answer in time")
    code = _BY_STATUS.get(status, Code.INTERNAL_ERROR)
    return error(code, f"{address} answered {status.name}: {message}")


def _in_words(message: str) -> str:
    """Why there is no connection, without what gRPC says around it."""
    if _GRPC_OTHER_PROTOCOL in message:
        return "what listens there does not speak gRPC"
    connect = _GRPC_CONNECT_FAILED.search(message)
    return connect["why"].lower() if connect else _GRPC_LAST_ERROR.sub("", message)


def was_sent(refusal: DLedgerError) -> bool:
    """Whether a node may have begun the call: not if there was no connection to send it on, or nobody there knows it.
    Of a stream it says so of its beginning only."""
    return refusal.metadata.get(_SENT) != "no"


def is_of_grpc(refusal: DLedgerError) -> bool:
    """Whether gRPC itself ended the call, or something on the way: unlike a node's own refusal it does not wait for the
    answers that come before it."""
    return refusal.metadata.get(_SAID_BY) == _GRPC


def code_named(reason: str) -> Code | None:
    """The code of that name, None for one that this version does not know."""
    return Code.__members__.get(reason)


def _error_info(failure: aio.AioRpcError) -> error_details_pb2.ErrorInfo | None:
    metadata: Iterable[tuple[str, str | bytes]] = failure.trailing_metadata() or ()
    for key, value in metadata:
        if key == _DETAILS_KEY and isinstance(value, bytes):
            try:
                status = status_pb2.Status.FromString(value)
            except DecodeError:
                return None  # Not ours: something between us and the node wrote it.
            for detail in status.details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info) and info.domain == ERROR_DOMAIN:
                    return info
    return None


async def unary(
    endpoint: Endpoint,
    method: aio.UnaryUnaryMultiCallable[Request, Response],
    request: Request,
    timeout_ms: float,
) -> Response:
    """One call with a deadline. Raises DeadlineExceeded when it passes, SHUTTING_DOWN when the client is closed, else
    what the node or the network refused."""
    if endpoint.closed:
        raise client_closed()
    earlier = cancellations()
    try:
        return await method(request, timeout=timeout_ms / 1000)
    except grpc.aio.AioRpcError as failure:
        raise from_rpc(failure, endpoint.address) from failure
    except asyncio.CancelledError:
        # A channel that is closed cancels its calls, which is nothing that the caller asked for.
        if cancellations() > earlier or not endpoint.closed:
            raise
        raise client_closed() from None

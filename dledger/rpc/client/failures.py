"""From gRPC's errors to ours: the ErrorInfo of a refusal names the code; without one the status has to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from dledger.common.errors import CODES, ERROR_DOMAIN, Code, DLedgerError, error
from dledger.common.http2_refusal import WRONG_PORT
from dledger.rpc.client.cancellation import client_closed
from dledger.rpc.client.rpc_failure import RpcFailure
from dledger.rpc.status import StatusCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dledger.rpc.client.channels import Endpoint

Request = TypeVar("Request")
Response = TypeVar("Response")

_DETAILS_KEY = "grpc-status-details-bin"
_TOO_LARGE = ("message larger than max", "are taken")
"""Parts of the texts by which gRPC refuses a message as too large: its own library's, and dledger's (rpc/wire.py)."""
_SENT = "sent"
_SAID_BY = "said_by"
_GRPC = "grpc"

_BY_STATUS: dict[StatusCode, Code] = {
    StatusCode.UNAVAILABLE: Code.NETWORK_ERROR,
    StatusCode.CANCELLED: Code.NETWORK_ERROR,
    StatusCode.INVALID_ARGUMENT: Code.UNEXPECTED_ARGUMENT,
    StatusCode.OUT_OF_RANGE: Code.INDEX_OUT_OF_RANGE,
    StatusCode.NOT_FOUND: Code.UNKNOWN_GROUP,
    StatusCode.RESOURCE_EXHAUSTED: Code.LEADER_PENDING_FULL,
    StatusCode.ABORTED: Code.TERM_CHANGED,
    StatusCode.DATA_LOSS: Code.CORRUPT_LOG,
    StatusCode.PERMISSION_DENIED: Code.UNEXPECTED_MEMBER,
    StatusCode.UNAUTHENTICATED: Code.UNEXPECTED_MEMBER,
}


def from_rpc(failure: RpcFailure, address: str) -> DLedgerError:
    """The typed error of a failed call to ``address``."""
    info = _error_info(failure)
    message = failure.details or failure.status.name
    if info is not None:
        code = code_named(info.reason)
        if code is not None:
            if code is Code.NOT_LEADER and info.metadata.get("leader_address") == address:
                message = f"{message}; several nodes tell clients this one address: give each an --advertise of its own"
            return CODES[code].exception(message, code=code, metadata=info.metadata)
    refusal = _by_status(failure, message, address)
    refusal.metadata[_SAID_BY] = _GRPC
    return refusal


def _by_status(failure: RpcFailure, message: str, address: str) -> DLedgerError:
    status = failure.status
    if status is StatusCode.RESOURCE_EXHAUSTED and any(text in message for text in _TOO_LARGE):
        return error(Code.BATCH_TOO_LARGE, f"{address} does not take messages of this size: {message}")
    if status is StatusCode.UNAVAILABLE and not failure.was_sent:
        return error(Code.NETWORK_ERROR, f"{address} {message}", **{_SENT: "no"})
    if status is StatusCode.UNIMPLEMENTED and WRONG_PORT.fullmatch(message):
        return error(Code.UNSUPPORTED, f"{address} cannot be asked: {message}", **{_SENT: "no"})
    if status is StatusCode.UNIMPLEMENTED:
        text = f"{address} does not know this call: it runs an earlier version, or is no dledger node ({message})"
        return error(Code.UNSUPPORTED, text, **{_SENT: "no"})
    if status is StatusCode.DEADLINE_EXCEEDED:
        unsent = {} if failure.was_sent else {_SENT: "no"}
        return error(Code.TIMEOUT, f"{address} did not answer in time", **unsent)
    code = _BY_STATUS.get(status, Code.INTERNAL_ERROR)
    if failure.is_local:
        return error(code, f"the call to {address} was given up: {message}")
    return error(code, f"{address} answered {status.name}: {message}")


def was_sent(refusal: DLedgerError) -> bool:
    """Whether a node may have begun the call: not if there was no connection to send it on, or nobody there knows it.
    Of a stream it says so of its beginning only."""
    return refusal.metadata.get(_SENT) != "no"


def is_of_grpc(refusal: DLedgerError) -> bool:
    """Whether gRPC itself, or something on the way, ended the call. Unlike a node's own refusal, this end does not wait
    for the answers before it."""
    return refusal.metadata.get(_SAID_BY) == _GRPC


def code_named(reason: str) -> Code | None:
    """The code of that name, None for one unknown to this version."""
    return Code.__members__.get(reason)


def _error_info(failure: RpcFailure) -> error_details_pb2.ErrorInfo | None:
    for key, value in failure.metadata:
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
    method: Callable[..., Awaitable[Response]],
    request: Request,
    timeout_ms: float,
) -> Response:
    """One call with a deadline. Raises DeadlineExceeded when it passes, SHUTTING_DOWN when the client is closed, else
    what the node or the network refused."""
    if endpoint.closed:
        raise client_closed()
    try:
        return await method(request, timeout=timeout_ms / 1000)
    except RpcFailure as failure:
        if endpoint.closed:
            raise client_closed() from None
        raise from_rpc(failure, endpoint.address) from failure

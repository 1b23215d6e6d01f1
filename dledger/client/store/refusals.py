"""Refusals of etcd's services, and of StoreService, as typed errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from dledger.common.errors import CODES, Code, DLedgerError, error
from dledger.common.store_errors import CODES_BY_TEXT, sentence_of
from dledger.rpc.client.cancellation import client_closed
from dledger.rpc.client.failures import code_named, from_rpc
from dledger.rpc.client.rpc_failure import RpcFailure

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from dledger.rpc.client.channels import Endpoint
    from dledger.v1 import store_service_pb2 as pb

Request = TypeVar("Request")
Response = TypeVar("Response")


def store_error(failure: RpcFailure, address: str) -> DLedgerError:
    """The typed error of a failed call of etcd's services at ``address``."""
    code = CODES_BY_TEXT.get(failure.details)
    if code is not None and not failure.is_local:
        return error(code, sentence_of(code, failure.details))
    return from_rpc(failure, address)


def of_submit(refusal: pb.SubmitRefusal) -> DLedgerError:
    """The typed error of a refusal within a stream."""
    code = code_named(refusal.reason) or Code.INTERNAL_ERROR
    message = refusal.message or f"the request was refused: {refusal.reason}"
    return CODES[code].exception(message, code=code, metadata=refusal.metadata)


async def unary(
    endpoint: Endpoint, method: Callable[..., Awaitable[Response]], request: Request, timeout_ms: float
) -> Response:
    """One call of etcd's services with a deadline. Raises the typed error of its failure."""
    if endpoint.closed:
        raise client_closed()
    try:
        return await method(request, timeout=timeout_ms / 1000)
    except RpcFailure as failure:
        if endpoint.closed:
            raise client_closed() from None
        raise store_error(failure, endpoint.address) from failure

"""How the fake server refuses."""

from __future__ import annotations

from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from dledger.common.errors import CODES, DLedgerError


async def abort(context: Any, refusal: DLedgerError) -> None:
    """As the real server refuses: a google.rpc.Status with one ErrorInfo."""
    info = error_details_pb2.ErrorInfo(domain="dledger", reason=refusal.code.name, metadata=refusal.metadata)
    detail = any_pb2.Any()
    detail.Pack(info)
    status = grpc.StatusCode[CODES[refusal.code].grpc_status]
    wire = status_pb2.Status(code=status.value[0], message=str(refusal), details=[detail])
    await context.abort_with_status(rpc_status.to_status(wire))

"""The calls of LogService and AdminService on one channel, built by ``Endpoint.stub(LogStubs)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dledger.client.log_client_wire import APPEND_STREAM, READ, ReadMessage, decode_read
from dledger.v1 import admin_pb2_grpc, log_pb2, log_pb2_grpc

if TYPE_CHECKING:
    from grpc import aio

    from dledger.v1.admin_pb2_grpc import AdminServiceAsyncStub
    from dledger.v1.log_pb2_grpc import LogServiceAsyncStub


class LogStubs:
    """The generated stubs; and the two calls that carry batches, whose messages ``log_client_wire`` encodes."""

    def __init__(self, channel: aio.Channel) -> None:
        self.append_stream: aio.StreamStreamMultiCallable[bytes, log_pb2.AppendStreamResponse] = channel.stream_stream(
            APPEND_STREAM, None, log_pb2.AppendStreamResponse.FromString
        )
        self.read: aio.UnaryStreamMultiCallable[log_pb2.ReadRequest, ReadMessage] = channel.unary_stream(
            READ, log_pb2.ReadRequest.SerializeToString, decode_read
        )
        self.log: LogServiceAsyncStub = log_pb2_grpc.LogServiceStub(channel)
        self.admin: AdminServiceAsyncStub = admin_pb2_grpc.AdminServiceStub(channel)

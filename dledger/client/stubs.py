"""The calls of LogService and AdminService on one channel, built by ``Endpoint.stub(LogStubs)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.message_factory import GetMessageClass

from dledger.client.log_client_wire import APPEND_STREAM, GET_STREAM, READ, decode_read
from dledger.rpc.client.channel import Channel
from dledger.v1 import admin_pb2, log_pb2

if TYPE_CHECKING:
    from google.protobuf.descriptor import ServiceDescriptor

    from dledger.v1.admin_pb2_grpc import AdminServiceAsyncStub
    from dledger.v1.log_pb2_grpc import LogServiceAsyncStub


class ServiceStub:
    """The methods of a service by their names, as generated stubs have them; those need gRPC's own library."""

    def __init__(self, channel: Channel, service: ServiceDescriptor) -> None:
        for method in service.methods:
            request, answer = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
            kinds: dict[tuple[bool, bool], Any] = {
                (False, False): channel.unary_unary,
                (False, True): channel.unary_stream,
                (True, True): channel.stream_stream,
            }
            kind = kinds[method.client_streaming, method.server_streaming]
            path = f"/{service.full_name}/{method.name}"
            setattr(self, method.name, kind(path, request.SerializeToString, answer.FromString))


class LogStubs:
    """Both services, and the streams. For streams with batches, ``log_client_wire`` encodes the messages."""

    def __init__(self, channel: Channel) -> None:
        self.append_stream = channel.stream_stream(APPEND_STREAM, None, log_pb2.AppendStreamResponse.FromString)
        self.read = channel.unary_stream(READ, log_pb2.ReadRequest.SerializeToString, decode_read)
        self.get_stream = channel.stream_stream(
            GET_STREAM, log_pb2.GetStreamRequest.SerializeToString, log_pb2.GetStreamResponse.FromString
        )
        self.log: LogServiceAsyncStub = _stub(channel, log_pb2.DESCRIPTOR.services_by_name["LogService"])
        self.admin: AdminServiceAsyncStub = _stub(channel, admin_pb2.DESCRIPTOR.services_by_name["AdminService"])


def _stub(channel: Channel, service: ServiceDescriptor) -> Any:
    return ServiceStub(channel, service)

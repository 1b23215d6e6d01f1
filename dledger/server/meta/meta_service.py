"""MetaService: the calls of other nodes to the leader of `meta`."""

from __future__ import annotations

from dledger.common.errors import Code, error
from dledger.rpc.server.refusals import Context, unary_in_context
from dledger.server.forwarding import Forwarder
from dledger.server.meta.at_leader import ThisNode
from dledger.statemachine.records import Command, OpenSession, decode
from dledger.v1 import meta_pb2 as pb
from dledger.v1 import meta_pb2_grpc


class MetaService(meta_pb2_grpc.MetaServiceServicer):
    def __init__(self, here: ThisNode, forwarder: Forwarder) -> None:
        self._here = here
        self._forwarder = forwarder

    @unary_in_context
    async def AppendCommands(self, request: pb.AppendCommandsRequest, context: Context) -> pb.AppendCommandsResponse:  # noqa: N802
        self._forwarder.check_node(context)
        records = list(request.records)
        for record in records:
            if not isinstance(decode(-1, record), Command | OpenSession):
                raise error(Code.UNEXPECTED_ARGUMENT, "others append commands alone, and requests for sessions")
        base_index = await self._here.append(records)
        self._here.tell_commit()
        return pb.AppendCommandsResponse(base_index=base_index)

    @unary_in_context
    async def ReadIndex(self, _request: pb.ReadIndexRequest, context: Context) -> pb.ReadIndexResponse:  # noqa: N802
        self._forwarder.check_node(context)
        commit_index = await self._here.read_index()
        self._here.tell_commit()
        return pb.ReadIndexResponse(commit_index=commit_index)

    @unary_in_context
    async def KeepLeaseAlive(self, request: pb.KeepLeaseAliveRequest, context: Context) -> pb.KeepLeaseAliveResponse:  # noqa: N802
        self._forwarder.check_node(context)
        return pb.KeepLeaseAliveResponse(ttl_s=await self._here.keep_alive(request.id))

    @unary_in_context
    async def LeaseTimes(self, request: pb.LeaseTimesRequest, context: Context) -> pb.LeaseTimesResponse:  # noqa: N802
        self._forwarder.check_node(context)
        return pb.LeaseTimesResponse(**(await self._here.lease_times(request.id))._asdict())

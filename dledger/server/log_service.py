"""LogService: the public API over gRPC. It translates; the replica decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import Consistency, Entry, id_of
from dledger.group.leader.appender import NO_SOURCE, Source
from dledger.group.leader.quorum_ack_checker import AppendResult
from dledger.group.replica import Replica
from dledger.rpc.server.pipeline import answers_in_order
from dledger.rpc.server.refusals import Context, consistency_of, streaming_in_context, turn_of, unary, unary_in_context
from dledger.server.cluster_node import ClusterNode
from dledger.server.forwarding import RefusedCall
from dledger.server.log_service_wire import AppendMessage, ReadMessage, encode_appended
from dledger.server.onward import MOST_HOPS
from dledger.v1 import log_pb2, log_pb2_grpc

MAX_GETS_IN_FLIGHT = 64
"""Messages of one GetStream that are worked on at a time."""
MAX_INDEXES_PER_GET = 10_000
MAX_PRODUCER_NAME_BYTES = 255
"""Every node keeps the names of 10,000 producers, and sends them along with a reset."""


_Message = TypeVar("_Message")
_RangeRequest = log_pb2.ReadRequest | log_pb2.ReadRecordsRequest


class LogService(log_pb2_grpc.LogServiceServicer):
    """Calls for another node are sent on (``Forwarder``), unless the caller asks for the refusal."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self._onward = node.forwarder

    @unary_in_context
    async def Append(self, request: log_pb2.AppendRequest, context: Context) -> log_pb2.AppendResponse:  # noqa: N802
        self._onward.check_sender(context)
        try:
            return await self._append(request)
        except DLedgerError as refusal:
            refused = RefusedCall("Append", request.group, refusal, context)
            return await self._onward.unary(refused, request, log_pb2.AppendResponse)

    async def _append(self, request: log_pb2.AppendRequest) -> log_pb2.AppendResponse:
        replica = await self._node.find_for_users(request.group)
        producer_id = request.producer_id
        source = Source(producer_id, request.producer_epoch, request.base_sequence) if producer_id else NO_SOURCE
        expected = request.expect_index if request.HasField("expect_index") else None
        result = await replica.appender.append_records(request.records, source, expect_index=expected)
        return log_pb2.AppendResponse(
            base_index=result.base_index, count=result.count, term=result.term, timestamp_ms=result.timestamp_ms
        )

    @streaming_in_context
    async def AppendStream(  # type: ignore[override]  # noqa: N802  # the decoder of its messages is ours
        self, requests: AsyncIterator[AppendMessage], context: Context
    ) -> AsyncIterator[log_pb2.AppendStreamResponse | bytes]:
        first, rest = await _first_of(requests)
        if first is None:
            return
        group = first.head.group
        elsewhere = await self._refusal_to_lead(group, context)
        if elsewhere is not None:
            encoded = (encode_appended(each) async for each in rest)
            refused = RefusedCall("AppendStream", group, elsewhere, context)
            async for answer in self._onward.stream(refused, encode_appended(first), encoded):
                yield answer
            return
        stream = _AppendStream(self._node)
        limit = self._node.config.limits.max_stream_batches
        try:
            async for result in answers_in_order(_with_first(first, rest), stream.begin, limit):
                yield log_pb2.AppendStreamResponse(
                    base_index=result.base_index, count=result.count, term=result.term, timestamp_ms=result.timestamp_ms
                )
        except DLedgerError as refusal:
            await self._node.check_exists(stream.group, refusal)
            raise

    @unary_in_context
    async def Get(self, request: log_pb2.GetRequest, context: Context) -> log_pb2.GetResponse:  # noqa: N802
        self._onward.check_sender(context)
        try:
            return await self._get(request)
        except DLedgerError as refusal:
            refused = RefusedCall("Get", request.group, refusal, context)
            return await self._onward.unary(refused, request, log_pb2.GetResponse)

    async def _get(self, request: log_pb2.GetRequest) -> log_pb2.GetResponse:
        reader = (await self._node.find(request.group)).reader
        point = await reader.read_point(consistency_of(request.consistency))
        entry = await reader.get(request.index, point)
        return log_pb2.GetResponse(entry=_entry(entry), commit_index=point.commit_index)

    @streaming_in_context
    async def GetStream(  # type: ignore[override]  # noqa: N802  # what another node answered is encoded
        self, requests: AsyncIterator[log_pb2.GetStreamRequest], context: Context
    ) -> AsyncIterator[log_pb2.GetStreamResponse | bytes]:
        loop = asyncio.get_running_loop()
        first, rest = await _first_of(requests)
        if first is None:
            return
        group = first.group
        refusal = await self._refusal_to_read(first, context)
        if refusal is not None:
            encoded = (each.SerializeToString() async for each in rest)
            refused = RefusedCall("GetStream", group, refusal, context)
            async for answer in self._onward.stream(refused, first.SerializeToString(), encoded):
                yield answer
            return

        def begin(request: log_pb2.GetStreamRequest) -> asyncio.Future[log_pb2.GetStreamResponse]:
            return loop.create_task(self._get_many(group, request))

        size_of = log_pb2.GetStreamResponse.ByteSize
        async for response in answers_in_order(_with_first(first, rest), begin, MAX_GETS_IN_FLIGHT, size_of):
            yield response

    async def _get_many(self, group: str, request: log_pb2.GetStreamRequest) -> log_pb2.GetStreamResponse:
        if len(request.indexes) > MAX_INDEXES_PER_GET:
            raise error(Code.BATCH_TOO_LARGE, f"one get may ask for {MAX_INDEXES_PER_GET} indexes; send less at once")
        reader = (await self._node.find(group)).reader
        point = await reader.read_point(consistency_of(request.consistency))
        response = log_pb2.GetStreamResponse(commit_index=point.commit_index)
        for found in await reader.get_many(request.indexes, point):
            result = response.results.add()
            if isinstance(found, DLedgerError):
                result.error.reason = found.code.value
                result.error.message = str(found)
                result.error.metadata.update(found.metadata)
            else:
                result.entry.index, result.entry.term, result.entry.timestamp_ms, result.entry.value = found
        return response

    @streaming_in_context
    async def Read(  # type: ignore[override]  # noqa: N802  # the encoder of its messages is ours
        self, request: log_pb2.ReadRequest, context: Context
    ) -> AsyncIterator[ReadMessage | bytes]:
        refusal = await self._refusal_to_read(request, context)
        if refusal is not None:
            refused = RefusedCall("Read", request.group, refusal, context)
            async for answer in self._onward.read(refused, request):
                yield answer
            return
        async for message in self._messages(request, context):
            yield message

    @streaming_in_context
    async def ReadRecords(  # type: ignore[override]  # noqa: N802  # what another node answered is encoded
        self, request: log_pb2.ReadRecordsRequest, context: Context
    ) -> AsyncIterator[log_pb2.ReadRecordsResponse | bytes]:
        refusal = await self._refusal_to_read(request, context)
        if refusal is not None:
            refused = RefusedCall("ReadRecords", request.group, refusal, context)
            async for answer in self._onward.read(refused, request):
                yield answer
            return
        async for message in self._messages(request, context):
            for frame in message.frames:
                for entry in frame.entries(request.start_index, request.end_index or None):
                    yield log_pb2.ReadRecordsResponse(entry=_entry(entry), commit_index=message.commit_index)

    async def _messages(self, request: _RangeRequest, context: Context) -> AsyncIterator[ReadMessage]:
        reader = (await self._node.find(request.group)).reader
        if request.end_index < 0:
            raise error(Code.UNEXPECTED_ARGUMENT, f"end_index {request.end_index} is negative; leave it out for none")
        point = await reader.read_point(consistency_of(request.consistency))
        end = request.end_index or None
        turn = turn_of(context)
        reading = reader.read(request.start_index, end, point, follow=request.follow, turn=turn)
        async for frames, commit_index in reading:
            yield ReadMessage(frames, commit_index, reader.again)

    # Calls for other nodes ---------------------------------------------------------------------------------------

    async def _refusal_to_lead(self, group: str, context: Context) -> DLedgerError | None:
        """This node's reason to send a call on; None: it leads, or refuses the call itself."""
        self._onward.check_sender(context)
        try:
            (await self._node.find(group)).admission.check_reader()
        except DLedgerError as refusal:
            return refusal if refusal.code in MOST_HOPS else None
        return None

    async def _refusal_to_read(
        self, request: _RangeRequest | log_pb2.GetStreamRequest, context: Context
    ) -> DLedgerError | None:
        """The same; a member of the group answers committed reads itself."""
        refusal = await self._refusal_to_lead(request.group, context)
        is_member = refusal is not None and refusal.code is Code.NOT_LEADER
        return None if is_member and consistency_of(request.consistency) is Consistency.COMMITTED else refusal

    # About the group, from any node ------------------------------------------------------------------------------

    @unary
    async def GetMetadata(self, request: log_pb2.GetMetadataRequest) -> log_pb2.GetMetadataResponse:  # noqa: N802
        node = self._node
        replica = await node.find(request.group)
        response = log_pb2.GetMetadataResponse(
            group=node.groups.name_of(replica.group),
            cluster_id=node.cluster_id,
            term=replica.term,
            leader_id=replica.leader_id,
            group_id=id_of(replica.group) or 0,
        )
        for member in replica.log.state.members:
            response.members.add(
                id=member.id,
                address=node.client_address(member.id),
                peer_address=member.peer_address,
                http_address=node.http_address(member.id),
                voter=member.voter,
            )
        return response

    @unary_in_context
    async def InitProducer(  # noqa: N802
        self, request: log_pb2.InitProducerRequest, context: Context
    ) -> log_pb2.InitProducerResponse:
        self._onward.check_sender(context)
        try:
            return await self._init_producer(request)
        except DLedgerError as refusal:
            refused = RefusedCall("InitProducer", request.group, refusal, context)
            return await self._onward.unary(refused, request, log_pb2.InitProducerResponse)

    async def _init_producer(self, request: log_pb2.InitProducerRequest) -> log_pb2.InitProducerResponse:
        appender = (await self._node.find_for_users(request.group)).appender
        if not request.name:
            result = await appender.new_producer()
            return log_pb2.InitProducerResponse(producer_id=result.base_index, producer_epoch=0)
        if len(request.name.encode()) > MAX_PRODUCER_NAME_BYTES:
            text = f"a producer's name has at most {MAX_PRODUCER_NAME_BYTES} bytes, not {len(request.name.encode())}"
            raise error(Code.UNEXPECTED_ARGUMENT, text)
        producer = await appender.named_producer(request.name)
        return log_pb2.InitProducerResponse(producer_id=producer.id, producer_epoch=producer.epoch, name=request.name)

    @unary
    async def ListSegments(self, request: log_pb2.ListSegmentsRequest) -> log_pb2.ListSegmentsResponse:  # noqa: N802
        replica = await self._node.find(request.group)
        segments = [log_pb2.SegmentInfo(**each._asdict()) for each in replica.log.segments()]
        return log_pb2.ListSegmentsResponse(segments=segments, commit_index=replica.reader.commit_index)


class _AppendStream:
    """One stream's group and producer, from its first message."""

    def __init__(self, node: ClusterNode) -> None:
        self._node = node
        self.group = ""
        self._replica: Replica | None = None
        self._producer_id = 0
        self._producer_epoch = 0
        self._last: asyncio.Future[AppendResult] | None = None

    def begin(self, message: AppendMessage) -> asyncio.Future[AppendResult]:
        request = message.head
        if self._replica is None:
            self.group = request.group
            self._replica = self._node.user_replica(request.group)
            self._producer_id = request.producer_id
            self._producer_epoch = request.producer_epoch
        self._last = self._replica.appender.append_body(
            message.body,
            request.body_crc,
            request.count,
            Source(self._producer_id, self._producer_epoch, request.base_sequence),
            behind=self._last,
            expect_index=request.expect_index if request.HasField("expect_index") else None,
        )
        return self._last


async def _first_of(requests: AsyncIterator[_Message]) -> tuple[_Message | None, AsyncIterator[_Message]]:
    """The first request of a stream, or None, and the rest."""
    rest = aiter(requests)
    return await anext(rest, None), rest


async def _with_first(first: _Message, rest: AsyncIterator[_Message]) -> AsyncIterator[_Message]:
    yield first
    async for each in rest:
        yield each


def _entry(entry: Entry) -> log_pb2.Entry:
    return log_pb2.Entry(index=entry.index, term=entry.term, timestamp_ms=entry.timestamp_ms, value=entry.value)

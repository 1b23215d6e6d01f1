"""LogService: the public API over gRPC. It translates; the replica decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import Entry, id_of
from dledger.group.leader.appender import NO_SOURCE, Source
from dledger.group.leader.quorum_ack_checker import AppendResult
from dledger.group.replica import Replica
from dledger.rpc.server.pipeline import answers_in_order
from dledger.rpc.server.refusals import consistency_of, streaming, unary
from dledger.server.cluster_node import ClusterNode
from dledger.server.log_service_wire import AppendMessage, ReadMessage
from dledger.v1 import log_pb2, log_pb2_grpc

MAX_GETS_IN_FLIGHT = 64
"""Messages of one GetStream that are worked on at a time."""
MAX_INDEXES_PER_GET = 10_000
MAX_PRODUCER_NAME_BYTES = 255
"""Every node keeps the names of 10,000 producers, and sends them along with a reset."""


class LogService(log_pb2_grpc.LogServiceServicer):
    def __init__(self, node: ClusterNode) -> None:
        self._node = node

    @unary
    async def Append(self, request: log_pb2.AppendRequest) -> log_pb2.AppendResponse:  # noqa: N802
        replica = await self._node.find_for_users(request.group)
        producer_id = request.producer_id
        source = Source(producer_id, request.producer_epoch, request.base_sequence) if producer_id else NO_SOURCE
        expected = request.expect_index if request.HasField("expect_index") else None
        result = await replica.appender.append_records(request.records, source, expect_index=expected)
        return log_pb2.AppendResponse(
            base_index=result.base_index, count=result.count, term=result.term, timestamp_ms=result.timestamp_ms
        )

    @streaming
    async def AppendStream(  # type: ignore[override]  # noqa: N802  # the decoder of its messages is ours
        self, requests: AsyncIterator[AppendMessage]
    ) -> AsyncIterator[log_pb2.AppendStreamResponse]:
        stream = _AppendStream(self._node)
        limit = self._node.config.limits.max_stream_batches
        try:
            async for result in answers_in_order(requests, stream.begin, limit):
                yield log_pb2.AppendStreamResponse(
                    base_index=result.base_index, count=result.count, term=result.term, timestamp_ms=result.timestamp_ms
                )
        except DLedgerError as refusal:
            await self._node.check_exists(stream.group, refusal)
            raise

    @unary
    async def Get(self, request: log_pb2.GetRequest) -> log_pb2.GetResponse:  # noqa: N802
        reader = (await self._node.find(request.group)).reader
        point = await reader.read_point(consistency_of(request.consistency))
        entry = await reader.get(request.index, point)
        return log_pb2.GetResponse(entry=_entry(entry), commit_index=point.commit_index)

    @streaming
    async def GetStream(  # noqa: N802
        self, requests: AsyncIterator[log_pb2.GetStreamRequest]
    ) -> AsyncIterator[log_pb2.GetStreamResponse]:
        loop = asyncio.get_running_loop()
        group: list[str] = []

        def begin(request: log_pb2.GetStreamRequest) -> asyncio.Future[log_pb2.GetStreamResponse]:
            if not group:
                group.append(request.group)
            return loop.create_task(self._get_many(group[0], request))

        async for response in answers_in_order(requests, begin, MAX_GETS_IN_FLIGHT):
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

    @streaming
    async def Read(  # type: ignore[override]  # noqa: N802  # the encoder of its messages is ours
        self, request: log_pb2.ReadRequest
    ) -> AsyncIterator[ReadMessage]:
        reader = (await self._node.find(request.group)).reader
        if request.end_index < 0:
            raise error(Code.UNEXPECTED_ARGUMENT, f"end_index {request.end_index} is negative; leave it out for none")
        point = await reader.read_point(consistency_of(request.consistency))
        end = request.end_index or None
        async for frames, commit_index in reader.read(request.start_index, end, point, follow=request.follow):
            yield ReadMessage(frames, commit_index)

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

    @unary
    async def InitProducer(self, request: log_pb2.InitProducerRequest) -> log_pb2.InitProducerResponse:  # noqa: N802
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


def _entry(entry: Entry) -> log_pb2.Entry:
    return log_pb2.Entry(index=entry.index, term=entry.term, timestamp_ms=entry.timestamp_ms, value=entry.value)

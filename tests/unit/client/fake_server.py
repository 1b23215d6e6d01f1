# ruff: noqa: N802  gRPC names its methods so
"""A log in memory behind the real LogService and AdminService, that misbehaves when told to.

``FakeCluster`` is what survives its nodes: the records, the producers and who leads. A ``FakeNode`` is one gRPC server
in front of it. ``Faults`` says what goes wrong next, and how often.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import grpc
from grpc import aio

from dledger.common.batch import build_body, check_body, crc32c, record_at, records_of
from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import Member, NodeId
from dledger.v1 import admin_pb2, admin_pb2_grpc, log_pb2, log_pb2_grpc, raft_pb2
from tests.unit.client.fake_admin import FakeAdmin
from tests.unit.client.refusals import abort

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SERVER_OPTIONS = [
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.max_send_message_length", 16 << 20),
]
"""A server has to allow the client's keepalive pings while a stream is idle."""
TIMESTAMP_MS = 1_700_000_000_000
SYSTEM_GROUPS = ("default", "meta")


@dataclass(frozen=True)
class StoredBatch:
    """One batch of the log."""

    base_index: int
    count: int
    term: int
    body: bytes
    producer_id: int
    base_sequence: int
    timestamp_ms: int


@dataclass
class Faults:
    """What goes wrong, counted down each time; 0 or empty: nothing."""

    refuse_appends: list[Code] = field(default_factory=list)
    """The next appended batches are refused with these."""
    drop_answers: int = 0
    """So many batches are appended, and the stream breaks instead of the answer."""
    refuse_after_drop: Code | None = None
    """Whatever comes behind a dropped answer is refused with this."""
    break_streams: int = 0
    """So many batches make the stream break before they are appended."""
    hold: asyncio.Event | None = None
    """No batch is appended before it is set."""
    keeps_answers: bool = False
    """Batches are appended, one after the other, and not answered."""
    miscounts: int = 0
    """So many answers tell of another number of records than were appended."""
    break_reads_after: list[int] = field(default_factory=list)
    """The next Read streams break after so many batches."""
    break_gets: int = 0
    disk_full: bool = False
    """There is no room, not even to register a producer."""
    lose_producers: bool = False
    """The log has forgotten every producer."""
    chaos: random.Random | None = None
    """Every fourth batch or so meets a fault of its choice."""
    refuse_admin: list[Code] = field(default_factory=list)
    """The next operations on the cluster are refused with these."""
    drop_admin_answers: int = 0
    """So many operations are done, and the connection breaks instead of the answer. None that is a dry run."""
    on_dropped: Callable[[], object] = lambda: None
    knows_no_names: bool = False
    """As servers of an earlier version, which hand out a new producer whatever its name."""
    silent: frozenset[str] = frozenset()
    """The methods that are not answered at all; "Change" is any operation on the cluster."""
    tells_no_metadata: bool = False
    """As servers of an earlier version, whose refusals of a get have a reason and a message only."""
    rot: bool = False
    """Batches read do not match their checksums."""


class FakeCluster:
    """The group: its log and its nodes, any of which may lead."""

    def __init__(self) -> None:
        self.batches: list[StoredBatch] = []
        self.last_sequence: dict[int, int] = {}
        self.next_producer = 1
        self.names: dict[str, int] = {}
        self.epochs: dict[int, int] = {}
        self.cluster_id = "fake"
        self.term = 1
        self.leader: FakeNode | None = None
        self.nodes: list[FakeNode] = []
        """Those that run, members or not."""
        self.members: dict[str, Member] = {}
        self.doubted: set[str] = set()
        """Members whose disk the leader does not trust."""
        self.settings = raft_pb2.GroupSettings()
        self.admin_changes = 0
        self.started_nodes = 0
        self.faults = Faults()
        self.groups: dict[str, admin_pb2.GroupInfo] = {}
        """Those that were made beside default and meta: their first founders lead. All have the same records."""
        self.groups_made = 0
        """As of a cluster that was founded with many groups."""
        self.first_index = 0
        self.clock_ms = TIMESTAMP_MS
        """The time of what is appended."""
        self._called: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.on_called: dict[str, Callable[[], Awaitable[None] | None]] = {}
        """What is done before the next call of a method is answered, once."""
        self.appended = asyncio.Condition()

    async def add_node(self, *, reachable: bool = True) -> FakeNode:
        node = FakeNode(self, f"n{self.started_nodes}")
        self.started_nodes += 1
        self.nodes.append(node)
        await node.start()
        self.members[node.id] = Member(NodeId(node.id), f"{node.address}:peer")
        if not reachable:
            await node.stop()
        return node

    async def replace(self, old: FakeNode) -> FakeNode:
        """A new member takes the place of ``old``, which is gone."""
        new = await self.add_node()
        if self.leader is old:
            self.lead(new)
        await old.stop()
        self.nodes.remove(old)
        del self.members[old.id]
        return new

    def founders_of(self, group: str) -> list[str]:
        return [each.id for each in self.groups[group].founders]

    def lead(self, node: FakeNode | None) -> None:
        self.leader = node
        self.term += 1

    async def answering(self, method: str, *, silent: bool = False) -> None:
        """Returns unless it is one of those that are silent."""
        self._called[method].set()
        done = self.on_called.pop(method, lambda: None)()
        if done is not None:
            await done
        if silent or method in self.faults.silent:
            await asyncio.Event().wait()

    async def holds(self, records: int) -> None:
        """Returns once there are so many."""
        async with self.appended:
            await self.appended.wait_for(lambda: self.end_index >= records)

    async def heard(self, method: str) -> None:
        """Returns once some node was called so."""
        await self._called[method].wait()

    def was_asked(self, method: str) -> bool:
        """Whether some node was called so."""
        return self._called[method].is_set()

    @property
    def endpoints(self) -> str:
        return ",".join(node.address for node in self.nodes)

    @property
    def end_index(self) -> int:
        return self.batches[-1].base_index + self.batches[-1].count if self.batches else 0

    def records(self) -> list[bytes]:
        return [record for batch in self.batches for record in records_of(batch.body, batch.count)]

    async def fill_large(self, count: int, size_bytes: int) -> None:
        for number in range(count):
            await self.fill([bytes([number]) * size_bytes])

    async def fill(self, records: list[bytes]) -> None:
        await self.store(0, 0, len(records), build_body(records))

    async def store(
        self, producer_id: int, sequence: int, count: int, body: bytes, expected: int | None = None
    ) -> StoredBatch:
        """Appends, or finds the duplicate, or refuses."""
        if producer_id:
            last = self.last_sequence.get(producer_id)
            if last is None:
                raise error(Code.UNKNOWN_PRODUCER, "the log does not know the producer")
            if sequence > last + 1:
                raise error(
                    Code.OUT_OF_ORDER, f"after {last} comes {last + 1}, not {sequence}", expected_sequence=last + 1
                )
            if sequence <= last:
                return self._duplicate(producer_id, sequence, count, body)
            self._check_expected(expected)
            self.last_sequence[producer_id] = sequence + count - 1
        batch = StoredBatch(self.end_index, count, self.term, body, producer_id, sequence, self.clock_ms)
        async with self.appended:
            self.batches.append(batch)
            self.appended.notify_all()
        return batch

    def _check_expected(self, expected: int | None) -> None:
        if expected not in (None, self.end_index):
            text = f"{expected} is expected, {self.end_index} comes"
            raise error(Code.WRONG_EXPECTED_INDEX, text, next_index=self.end_index)

    def begin_epoch(self, producer_id: int, epoch: int) -> None:
        """Sequences begin at 0 again; those of the last epoch are forgotten."""
        self.epochs[producer_id] = epoch
        self.last_sequence[producer_id] = -1
        self.batches = [
            replace(each, producer_id=0) if each.producer_id == producer_id else each for each in self.batches
        ]

    def _duplicate(self, producer_id: int, sequence: int, count: int, body: bytes) -> StoredBatch:
        for batch in self.batches:
            if (batch.producer_id, batch.base_sequence, batch.count) == (producer_id, sequence, count):
                if batch.body != body:
                    raise error(Code.SEQUENCE_CONFLICT, "other bytes under a known sequence")
                return batch
        raise error(Code.SEQUENCE_CONFLICT, "other boundaries under a known sequence")

    def find(self, index: int) -> tuple[StoredBatch, bytes]:
        bounds = {"first_index": self.first_index, "commit_index": self.end_index - 1}
        if index < self.first_index:
            raise error(Code.INDEX_LESS_THAN_LOCAL_BEGIN, f"{index} was trimmed", **bounds)
        for batch in self.batches:
            if batch.base_index <= index < batch.base_index + batch.count:
                return batch, record_at(batch.body, batch.count, index - batch.base_index)
        raise error(Code.INDEX_OUT_OF_RANGE, f"there is no record {index}", **bounds)


class FakeNode(log_pb2_grpc.LogServiceServicer, FakeAdmin):
    """One server."""

    def __init__(self, cluster: FakeCluster, node_id: str) -> None:
        self.cluster = cluster
        self.id = node_id
        self.address = ""
        self.append_messages: list[tuple[int, int, int]] = []
        """(producer_id, base_sequence, count) of every message received, resends too."""
        self.received = asyncio.Condition()
        self.get_messages = 0
        self.has_ended_a_read = asyncio.Event()
        self.metadata_calls = 0
        self.groups_told: Counter[str] = Counter()
        """The same by group."""
        self.appended_to: set[str] = set()
        """The groups that appends were for."""
        self.believes: tuple[int, FakeNode] | None = None
        """A term and its leader, when it has not heard of newer ones."""
        self.remembers: dict[str, Member] | None = None
        """The members, when it was removed before the last changes."""
        self.reads_are_silent = False
        self.is_silent = False
        """Neither tells of the group nor of itself."""
        self.knows_batches: int | None = None
        """Of how many it has heard that they are committed, when not of all."""

    async def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.server = aio.server(options=SERVER_OPTIONS)
        log_pb2_grpc.add_LogServiceServicer_to_server(self, self.server)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(self, self.server)
        port = self.server.add_insecure_port(self.address or "127.0.0.1:0")
        self.address = self.address or f"127.0.0.1:{port}"
        await self.server.start()

    async def stop(self) -> None:
        await self.server.stop(None)

    def leader_of(self, group: str) -> FakeNode | None:
        """Raises UNKNOWN_GROUP, and NOT_HERE if this node has no replica of it."""
        if group in SYSTEM_GROUPS:
            return self.cluster.leader
        if group not in self.cluster.groups:
            raise error(Code.UNKNOWN_GROUP, f"there is no group {group!r}")
        founders = self.cluster.founders_of(group)
        if self.id not in founders:
            raise error(Code.NOT_HERE, f"{self.id} has no replica of {group!r}")
        return next((node for node in self.cluster.nodes if node.id == founders[0]), None)

    def check_leader(self, group: str = "default") -> None:
        leader = self.leader_of(group)
        if leader is not self:
            named = {"leader_id": leader.id, "leader_address": leader.address} if leader else {}
            raise error(Code.NOT_LEADER, f"{self.id} does not lead", **named)

    async def InitProducer(self, request: Any, context: Any) -> Any:
        await self.cluster.answering("InitProducer")
        try:
            self.check_leader(request.group)
        except DLedgerError as refusal:
            await abort(context, refusal)
        if self.cluster.faults.disk_full:
            await abort(context, error(Code.DISK_FULL, "no room"))
        cluster = self.cluster
        if request.name in cluster.names:
            producer_id = cluster.names[request.name]
            return log_pb2.InitProducerResponse(
                producer_id=producer_id, producer_epoch=cluster.epochs.get(producer_id, 0), name=request.name
            )
        cluster.next_producer += 1
        cluster.last_sequence[cluster.next_producer] = -1
        if request.name:
            cluster.names[request.name] = cluster.next_producer
        name = "" if cluster.faults.knows_no_names else request.name
        return log_pb2.InitProducerResponse(producer_id=cluster.next_producer, producer_epoch=0, name=name)

    async def ListSegments(self, request: Any, context: Any) -> Any:
        await self.cluster.answering("ListSegments")
        whole = log_pb2.SegmentInfo(base_index=self.cluster.first_index, end_index=self.cluster.end_index)
        return log_pb2.ListSegmentsResponse(segments=[whole], commit_index=self.cluster.end_index - 1)

    async def Append(self, request: Any, context: Any) -> Any:
        try:
            self.check_leader(request.group)
            batch = await self.cluster.store(0, 0, len(request.records), build_body(request.records))
        except DLedgerError as refusal:
            await abort(context, refusal)
        return log_pb2.AppendResponse(base_index=batch.base_index, count=batch.count, term=batch.term)

    async def AppendStream(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        producer_id: int | None = None
        async for request in request_iterator:
            producer_id = request.producer_id if producer_id is None else producer_id
            if request.producer_epoch > self.cluster.epochs.get(producer_id, 0):
                self.cluster.begin_epoch(producer_id, request.producer_epoch)
            self.appended_to.add(request.group)
            self.append_messages.append((producer_id, request.base_sequence, request.count))
            async with self.received:
                self.received.notify_all()
            try:
                batch = await self._append(request, producer_id, context)
            except DLedgerError as refusal:
                await abort(context, refusal)
                return
            if self.cluster.faults.keeps_answers:
                continue
            yield log_pb2.AppendStreamResponse(
                base_index=batch.base_index, count=self._told(batch), term=batch.term, timestamp_ms=batch.timestamp_ms
            )

    async def _append(self, request: Any, producer_id: int, context: Any) -> StoredBatch:
        faults = self.cluster.faults
        if faults.hold is not None:
            await faults.hold.wait()
        if faults.chaos is not None and faults.chaos.random() < 0.25:
            self._misbehave(faults.chaos)
        self.check_leader(request.group)
        if faults.disk_full:
            raise error(Code.DISK_FULL, "no room")
        if faults.refuse_appends:
            code = faults.refuse_appends.pop(0)
            raise error(code, f"refused with {code.name}")
        if faults.lose_producers:
            faults.lose_producers = False
            self.cluster.last_sequence.clear()
        if faults.break_streams:
            faults.break_streams -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the stream broke")
        assert crc32c(request.body) == request.body_crc
        check_body(request.body, request.count, 1 << 20)
        expected = request.expect_index if request.HasField("expect_index") else None
        batch = await self.cluster.store(producer_id, request.base_sequence, request.count, request.body, expected)
        if faults.drop_answers:
            faults.drop_answers -= 1
            if faults.refuse_after_drop is not None:
                faults.refuse_appends.append(faults.refuse_after_drop)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the answer was lost")
        return batch

    def _told(self, batch: StoredBatch) -> int:
        is_wrong = self.cluster.faults.miscounts > 0
        self.cluster.faults.miscounts -= is_wrong
        return batch.count + is_wrong

    def _misbehave(self, rng: random.Random) -> None:
        choice = rng.randrange(4)
        if choice == 0:
            self.cluster.faults.drop_answers += 1
        elif choice == 1:
            self.cluster.faults.break_streams += 1
        elif choice == 2:
            code = rng.choice([Code.LEADER_PENDING_FULL, Code.TERM_CHANGED, Code.OUT_OF_ORDER, Code.SHUTTING_DOWN])
            self.cluster.faults.refuse_appends.append(code)
        else:
            self.cluster.lead(rng.choice(self.cluster.nodes))

    async def Get(self, request: Any, context: Any) -> Any:
        await self.cluster.answering("Get")
        try:
            if request.consistency != log_pb2.CONSISTENCY_COMMITTED:
                self.check_leader(request.group)
            batch, value = self.cluster.find(request.index)
        except DLedgerError as refusal:
            await abort(context, refusal)
        entry = log_pb2.Entry(index=request.index, term=batch.term, timestamp_ms=batch.timestamp_ms, value=value)
        return log_pb2.GetResponse(entry=entry, commit_index=self.cluster.end_index - 1)

    async def GetStream(self, request_iterator: Any, context: Any) -> AsyncIterator[Any]:
        async for request in request_iterator:
            self.get_messages += 1
            await self.cluster.answering("GetStream")
            if self.cluster.faults.break_gets:
                self.cluster.faults.break_gets -= 1
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the stream broke")
            results = [self._result(index, request) for index in request.indexes]
            yield log_pb2.GetStreamResponse(results=results, commit_index=self.cluster.end_index - 1)

    def _result(self, index: int, request: Any) -> Any:
        try:
            if request.consistency != log_pb2.CONSISTENCY_COMMITTED:
                self.check_leader(request.group)
            batch, value = self.cluster.find(index)
        except DLedgerError as refusal:
            metadata = {} if self.cluster.faults.tells_no_metadata else refusal.metadata
            refused = log_pb2.Error(reason=refusal.code.name, message=str(refusal), metadata=metadata)
            return log_pb2.GetResult(error=refused)
        entry = log_pb2.Entry(index=index, term=batch.term, timestamp_ms=batch.timestamp_ms, value=value)
        return log_pb2.GetResult(entry=entry)

    async def ReadRecords(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """The client takes batches apart by itself."""
        raise NotImplementedError
        yield

    async def Read(self, request: Any, context: Any) -> AsyncIterator[Any]:
        await self.cluster.answering("Read")
        try:
            if request.consistency != log_pb2.CONSISTENCY_COMMITTED:
                self.check_leader(request.group)
            if request.start_index < self.cluster.first_index:
                self.cluster.find(request.start_index)
        except DLedgerError as refusal:
            await abort(context, refusal)
        faults = self.cluster.faults
        breaks_after = faults.break_reads_after.pop(0) if faults.break_reads_after else -1
        commit_index = self.cluster.end_index - 1
        end = request.end_index or (1 << 62 if request.follow else commit_index + 1)
        position = 0
        while True:
            while position < len(self.cluster.batches[: self.knows_batches]):
                batch = self.cluster.batches[position]
                position += 1
                if batch.base_index + batch.count <= request.start_index or batch.base_index >= end:
                    continue
                if self.reads_are_silent:
                    await asyncio.Event().wait()
                if breaks_after == 0:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "the stream broke")
                breaks_after -= 1
                yield self._read_response(batch)
            if not request.follow or self.cluster.end_index >= end:
                self.has_ended_a_read.set()
                return
            async with self.cluster.appended:
                if position == len(self.cluster.batches):
                    await self.cluster.appended.wait()

    def _read_response(self, batch: StoredBatch) -> Any:
        wire = log_pb2.Batch(
            base_index=batch.base_index,
            count=batch.count,
            term=batch.term,
            timestamp_ms=batch.timestamp_ms,
            body_crc=crc32c(batch.body) ^ self.cluster.faults.rot,
            body=batch.body,
            producer_id=batch.producer_id,
            base_sequence=batch.base_sequence,
        )
        return log_pb2.ReadResponse(batches=[wire], commit_index=self.cluster.end_index - 1)

    async def GetMetadata(self, request: Any, context: Any) -> Any:
        await self.cluster.answering("GetMetadata", silent=self.is_silent)
        try:
            leader = self.leader_of(request.group)
        except DLedgerError as refusal:
            await abort(context, refusal)
        self.metadata_calls += 1
        self.groups_told[request.group] += 1
        async with self.received:
            self.received.notify_all()
        term, leader = self.believes or (self.cluster.term, leader)
        addresses = {node.id: node.address for node in self.cluster.nodes}
        members = [
            log_pb2.Member(id=id_, address=addresses.get(id_, ""), peer_address=each.peer_address, voter=each.voter)
            for id_, each in (self.remembers or self.cluster.members).items()
            if request.group in SYSTEM_GROUPS
            or id_ in {each.id for each in self.cluster.groups[request.group].founders}
        ]
        return log_pb2.GetMetadataResponse(
            group=request.group,
            cluster_id=self.cluster.cluster_id,
            term=term,
            leader_id=leader.id if leader else "",
            members=members,
        )

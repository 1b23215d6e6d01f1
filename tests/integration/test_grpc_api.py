"""The public API as any language sees it: plain stubs, no SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import pytest
import pytest_asyncio

from dledger.common.batch import build_body, crc32c
from dledger.v1 import admin_pb2, log_pb2
from tests.integration.nodes import CALL_TIMEOUT_S, Nodes, everything, refusal_in, refusal_of, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

COMMITTED = log_pb2.CONSISTENCY_COMMITTED
BEYOND = 1 << 40


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    async with running(tmp_path_factory.mktemp("api")) as started:
        await started[await started.leader()].append(b"record 0")  # as an end, 0 means that there is none
        yield started


def batch(*records: bytes, **fields: Any) -> log_pb2.AppendStreamRequest:
    body = build_body(records)
    wanted: dict[str, Any] = {"count": len(records), "body_crc": crc32c(body), "body": body} | fields
    return log_pb2.AppendStreamRequest(**wanted)


def records_in(batches: Sequence[log_pb2.Batch]) -> list[bytes]:
    """Taken apart by the format as log.proto tells it."""
    found = []
    for each in batches:
        assert crc32c(each.body) == each.body_crc
        offsets = memoryview(each.body)[: 4 * (each.count + 1)].cast("i").tolist()
        data = each.body[4 * (each.count + 1) :]
        found += [data[offsets[i] : offsets[i + 1]] for i in range(each.count)]
    return found


async def read(nodes: Nodes, node_id: str, start: int, **fields: Any) -> list[bytes]:
    """All records from ``start`` on; what a first batch has before it is dropped, as readers do."""
    request = log_pb2.ReadRequest(start_index=start, **fields)
    answers = await everything(nodes[node_id].log.Read(request, timeout=CALL_TIMEOUT_S))
    batches = [each for answer in answers for each in answer.batches]
    return records_in(batches)[start - batches[0].base_index :] if batches else []


async def producer_at(nodes: Nodes, node_id: str) -> int:
    response = await nodes[node_id].log.InitProducer(log_pb2.InitProducerRequest(), timeout=CALL_TIMEOUT_S)
    assert response.producer_epoch == 0
    return response.producer_id


# Append and Get ------------------------------------------------------------------------------------------------------


async def test_what_is_appended_has_consecutive_indexes_and_is_got_from_the_leader(nodes: Nodes) -> None:
    leader = nodes[await nodes.leader()]
    ack = await leader.append(b"one", b"", b"\x00\xff")
    again = await leader.append(b"four")
    assert (ack.count, again.count, again.base_index) == (3, 1, ack.base_index + 3)
    for ordinal, value in enumerate([b"one", b"", b"\x00\xff"]):
        response = await leader.get(ack.base_index + ordinal)
        entry = response.entry
        assert (entry.index, entry.value) == (ack.base_index + ordinal, value)
        assert (entry.term, entry.timestamp_ms) == (ack.term, ack.timestamp_ms)
        assert response.commit_index >= again.base_index


async def test_appends_sent_side_by_side_each_get_indexes_of_their_own(nodes: Nodes) -> None:
    leader = nodes[await nodes.leader()]
    acks = await asyncio.gather(*(leader.append(b"%d" % number, b"%d'" % number) for number in range(100)))
    assert len({ack.base_index for ack in acks}) == 100
    for number in (0, 57, 99):
        response = await leader.get(acks[number].base_index + 1)
        assert response.entry.value == b"%d'" % number


async def test_every_node_reads_its_committed_prefix_and_says_how_far_it_reaches(nodes: Nodes) -> None:
    leader = nodes[await nodes.leader()]
    ack = await leader.append(b"everywhere")
    await nodes.settled()
    for node_id in nodes.ids:
        response = await nodes[node_id].get(ack.base_index, consistency=COMMITTED)
        assert response.entry.value == b"everywhere"
        assert response.commit_index >= ack.base_index
        assert (await read(nodes, node_id, ack.base_index, consistency=COMMITTED))[0] == b"everywhere"


async def test_a_follower_that_may_not_send_a_call_on_names_the_leader_and_its_address(nodes: Nodes) -> None:
    leader = await nodes.leader()
    for follower in await nodes.followers():
        log, admin = nodes[follower].log, nodes[follower].admin
        directly: dict[str, Any] = {"timeout": CALL_TIMEOUT_S, "metadata": (("dledger-hops", "0"),)}
        for call in (
            log.Append(log_pb2.AppendRequest(records=[b"x"]), **directly),
            log.Get(log_pb2.GetRequest(), **directly),
            everything(log.Read(log_pb2.ReadRequest(), **directly)),
            everything(log.ReadRecords(log_pb2.ReadRecordsRequest(), **directly)),
            everything(log.GetStream(iter([log_pb2.GetStreamRequest(indexes=[0])]), **directly)),
            everything(log.AppendStream(iter([batch(b"x")]), **directly)),
            log.InitProducer(log_pb2.InitProducerRequest(), **directly),
            admin.TransferLeadership(admin_pb2.TransferLeadershipRequest(), timeout=CALL_TIMEOUT_S),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await call
            refusal = refusal_in(failure.value)
            assert (refusal.status, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "NOT_LEADER")
            assert refusal.metadata == {"leader_id": leader, "leader_address": nodes[leader].address}
            trailing = dict(failure.value.trailing_metadata())
            assert trailing["dledger-leader-id"] == leader
            assert trailing["dledger-leader-address"] == nodes[leader].address


# ReadRecords ---------------------------------------------------------------------------------------------------------


async def test_records_are_read_one_a_message_from_where_one_asks_to_the_end(nodes: Nodes) -> None:
    leader = nodes[await nodes.leader()]
    ack = await leader.append(b"a", b"", b"c")
    request = log_pb2.ReadRecordsRequest(start_index=ack.base_index + 1)
    answers = await everything(leader.log.ReadRecords(request, timeout=CALL_TIMEOUT_S))
    assert [(each.entry.index - ack.base_index, each.entry.value) for each in answers] == [(1, b""), (2, b"c")]
    assert {(each.entry.term, each.entry.timestamp_ms) for each in answers} == {(ack.term, ack.timestamp_ms)}
    assert {each.commit_index for each in answers} == {ack.base_index + 2}


async def test_records_are_read_up_to_before_the_end_that_one_asks_for(nodes: Nodes) -> None:
    leader = nodes[await nodes.leader()]
    base = (await leader.append(b"a", b"b", b"c")).base_index
    request = log_pb2.ReadRecordsRequest(start_index=base, end_index=base + 2)
    answers = await everything(leader.log.ReadRecords(request, timeout=CALL_TIMEOUT_S))
    assert [each.entry.value for each in answers] == [b"a", b"b"]


# Read and GetStream --------------------------------------------------------------------------------------------------


async def test_a_read_ends_at_what_was_committed_at_the_call(nodes: Nodes) -> None:
    leader = await nodes.leader()
    ack = await nodes[leader].append(b"a", b"b", b"c")
    assert await read(nodes, leader, ack.base_index) == [b"a", b"b", b"c"]
    assert await read(nodes, leader, ack.base_index + 1) == [b"b", b"c"]
    assert await read(nodes, leader, ack.base_index, end_index=ack.base_index) == []


async def test_a_read_from_behind_the_last_record_is_empty_and_from_further_on_is_refused(nodes: Nodes) -> None:
    leader = await nodes.leader()
    end = (await nodes[leader].append(b"last")).base_index + 1
    assert await read(nodes, leader, end) == []
    refusal = await refusal_of(read(nodes, leader, end + 1))
    assert (refusal.status, refusal.reason) == (grpc.StatusCode.OUT_OF_RANGE, "INDEX_OUT_OF_RANGE")
    assert refusal.metadata == {"first_index": "0", "commit_index": str(end - 1)}


async def test_a_read_that_follows_gets_what_comes_on_every_node(nodes: Nodes) -> None:
    leader = nodes[await nodes.leader()]
    start = (await leader.append(b"before")).base_index + 1
    request = log_pb2.ReadRequest(start_index=start, follow=True, consistency=COMMITTED)
    await nodes.settled()
    reads = [nodes[node_id].log.Read(request, timeout=CALL_TIMEOUT_S) for node_id in nodes.ids]
    for number in range(3):
        value = b"news %d" % number
        await leader.append(value)
        for call in reads:
            answer: Any = await call.read()
            assert records_in(answer.batches) == [value]
            assert answer.commit_index == start + number
    for call in reads:
        call.cancel()


async def test_a_read_that_follows_ends_at_the_end_it_was_given(nodes: Nodes) -> None:
    leader = nodes[await nodes.leader()]
    start = (await leader.append(b"before")).base_index + 1
    request = log_pb2.ReadRequest(start_index=start, end_index=start + 2, follow=True)
    reading = asyncio.create_task(everything(leader.log.Read(request, timeout=CALL_TIMEOUT_S)))
    await leader.append(b"x")
    await leader.append(b"y")
    answers = await reading
    assert records_in([each for answer in answers for each in answer.batches]) == [b"x", b"y"]


async def test_a_get_stream_goes_on_behind_a_record_that_cannot_be_had(nodes: Nodes) -> None:
    leader = nodes[await nodes.leader()]
    ack = await leader.append(b"first", b"second")
    asked = [[BEYOND], [ack.base_index, -1, ack.base_index + 1], [], [ack.base_index]]
    requests = iter([log_pb2.GetStreamRequest(indexes=indexes) for indexes in asked])
    answers = await everything(leader.log.GetStream(requests, timeout=CALL_TIMEOUT_S))
    told = [[result.entry.value or result.error.reason for result in answer.results] for answer in answers]
    assert told == [
        ["INDEX_OUT_OF_RANGE"],
        [b"first", "INDEX_LESS_THAN_LOCAL_BEGIN", b"second"],
        [],
        [b"first"],
    ]
    [refused] = answers[0].results
    assert refused.error.metadata["first_index"] == "0"


async def test_large_records_asked_for_at_once_are_all_had_or_the_refusal_is_typed(nodes: Nodes) -> None:
    leader = nodes[await nodes.leader()]
    size = 1 << 20
    indexes = [(await leader.append(bytes([number]) * size)).base_index for number in range(3)]
    requests = [log_pb2.GetStreamRequest(indexes=indexes)]
    [answer] = await everything(leader.log.GetStream(iter(requests), timeout=CALL_TIMEOUT_S))
    assert [result.entry.value for result in answer.results] == [bytes([number]) * size for number in range(3)]
    requests = [log_pb2.GetStreamRequest(indexes=indexes * 2)]
    refusal = await refusal_of(everything(leader.log.GetStream(iter(requests), timeout=CALL_TIMEOUT_S)))
    assert (refusal.status, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "BATCH_TOO_LARGE")


# AppendStream --------------------------------------------------------------------------------------------------------


async def test_an_append_stream_answers_in_the_order_of_its_requests(nodes: Nodes) -> None:
    leader = await nodes.leader()
    batches = [batch(*(b"%d/%d" % (number, part) for part in range(number % 3 + 1))) for number in range(200)]
    answers = await everything(nodes[leader].log.AppendStream(iter(batches), timeout=CALL_TIMEOUT_S))
    assert [answer.count for answer in answers] == [each.count for each in batches]
    start = answers[0].base_index
    indexes = [answer.base_index for answer in answers]
    assert indexes == sorted(indexes)
    assert await read(nodes, leader, start) == records_in(
        [log_pb2.Batch(count=b.count, body=b.body, body_crc=b.body_crc) for b in batches]
    )


@pytest.mark.parametrize("wrong", [batch(b"bad", body_crc=1), batch(b"bad", count=2)], ids=["crc", "count"])
async def test_an_append_stream_ends_with_its_first_refusal_and_appends_nothing_behind_it(
    nodes: Nodes, wrong: log_pb2.AppendStreamRequest
) -> None:
    leader = await nodes.leader()
    end = (await nodes[leader].append(b"mark")).base_index + 1
    refusal = await refusal_of(nodes[leader].append_stream(batch(b"good"), wrong, batch(b"behind")))
    assert refusal.reason == "CORRUPT_BATCH"
    assert await read(nodes, leader, end) == [b"good"]


async def test_an_append_stream_ends_at_a_gap_in_its_sequence_and_appends_nothing_behind_it(nodes: Nodes) -> None:
    leader = await nodes.leader()
    producer = await producer_at(nodes, leader)
    end = (await nodes[leader].append(b"mark")).base_index + 1
    batches = [
        batch(b"good", producer_id=producer, base_sequence=0),
        batch(b"gap", producer_id=producer, base_sequence=7),
        batch(b"behind", producer_id=producer, base_sequence=8),
        batch(b"would fit", producer_id=producer, base_sequence=1),
    ]
    refusal = await refusal_of(nodes[leader].append_stream(*batches))
    assert refusal.reason == "OUT_OF_ORDER"
    assert await read(nodes, leader, end) == [b"good"]


# Producers -----------------------------------------------------------------------------------------------------------


async def test_a_retry_gets_the_first_answer_and_appends_nothing(nodes: Nodes) -> None:
    leader = await nodes.leader()
    producer = await producer_at(nodes, leader)
    first = await nodes[leader].append(b"a", b"b", producer_id=producer, base_sequence=0)
    second = await nodes[leader].append(b"c", producer_id=producer, base_sequence=2)
    assert await nodes[leader].append(b"a", b"b", producer_id=producer, base_sequence=0) == first
    assert await nodes[leader].append(b"c", producer_id=producer, base_sequence=2) == second
    assert await read(nodes, leader, first.base_index) == [b"a", b"b", b"c"]


async def test_retries_sent_side_by_side_append_once(nodes: Nodes) -> None:
    leader = await nodes.leader()
    producer = await producer_at(nodes, leader)
    sends = [nodes[leader].append(b"once", producer_id=producer, base_sequence=0) for _ in range(20)]
    acks = await asyncio.gather(*sends)
    assert len({ack.base_index for ack in acks}) == 1
    assert await read(nodes, leader, acks[0].base_index) == [b"once"]


async def test_a_batch_that_does_not_fit_its_producer_is_refused(nodes: Nodes) -> None:
    leader = await nodes.leader()
    producer = await producer_at(nodes, leader)
    ack = await nodes[leader].append(b"a", b"b", producer_id=producer, producer_epoch=1, base_sequence=0)
    for records, epoch, sequence, status, reason in (
        ([b"c"], 1, 3, "ABORTED", "OUT_OF_ORDER"),
        ([b"a", b"B"], 1, 0, "INVALID_ARGUMENT", "SEQUENCE_CONFLICT"),
        ([b"a"], 1, 0, "INVALID_ARGUMENT", "SEQUENCE_CONFLICT"),
        ([b"b"], 1, 1, "INVALID_ARGUMENT", "SEQUENCE_CONFLICT"),
        ([b"b", b"c"], 1, 1, "INVALID_ARGUMENT", "SEQUENCE_CONFLICT"),
        ([b"c"], 0, 2, "FAILED_PRECONDITION", "PRODUCER_FENCED"),
        ([b"c"], 2, 2, "ABORTED", "OUT_OF_ORDER"),
    ):
        call = nodes[leader].append(*records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        refusal = await refusal_of(call)
        assert (refusal.status.name, refusal.reason) == (status, reason), (records, epoch, sequence)
    for unknown, sequence in ((BEYOND, 0), (BEYOND, 5), (producer + 1, 5)):
        refusal = await refusal_of(nodes[leader].append(b"x", producer_id=unknown, base_sequence=sequence))
        assert (refusal.status.name, refusal.reason) == ("FAILED_PRECONDITION", "UNKNOWN_PRODUCER")
    assert await read(nodes, leader, ack.base_index) == [b"a", b"b"]


async def test_producers_are_given_ids_of_their_own(nodes: Nodes) -> None:
    leader = await nodes.leader()
    ids = await asyncio.gather(*(producer_at(nodes, leader) for _ in range(10)))
    assert len(set(ids)) == 10
    assert 0 not in ids


# The cluster ---------------------------------------------------------------------------------------------------------


async def test_every_node_tells_the_same_metadata(nodes: Nodes) -> None:
    leader = await nodes.leader()
    told = []
    for node_id in nodes.ids:
        metadata = await nodes[node_id].log.GetMetadata(log_pb2.GetMetadataRequest(), timeout=CALL_TIMEOUT_S)
        members = {member.id: member for member in metadata.members}
        for each in nodes.cluster.nodes.values():
            member = members[each.id]
            assert (member.address, member.peer_address) == (each.client_address, each.peer_address)
            assert (member.http_address, member.voter) == (each.http_address, True)
        told.append((metadata.group, metadata.cluster_id, metadata.term, metadata.leader_id))
    assert len(set(told)) == 1
    assert told[0][3] == leader
    assert told[0][1]


async def test_status_tells_of_each_node_and_the_leader_of_its_followers(nodes: Nodes) -> None:
    last_index, position, _, leader = await nodes.settled()
    for node_id, pid in nodes.pids().items():
        status = await nodes[node_id].status()
        assert (status.id, status.pid, status.group) == (node_id, pid, "default")
        assert status.role == ("leader" if node_id == leader else "follower")
        assert (status.first_index, status.last_index, status.position) == (0, last_index, position)
        assert status.data_dir == str(nodes.cluster.nodes[node_id].data_dir)
        followers = {each.id: each for each in status.followers}
        assert set(followers) == (set(nodes.ids) - {leader} if node_id == leader else set())
        for follower in followers.values():
            assert (follower.state, follower.match_position, follower.lag_frames) == ("append", position, 0)
            assert follower.connected


async def test_the_leadership_is_handed_to_the_node_named_and_a_stranger_is_refused(nodes: Nodes) -> None:
    leader = await nodes.leader()
    target = (await nodes.followers())[0]
    before = await nodes[leader].status()
    request = admin_pb2.TransferLeadershipRequest(target_id="n9")
    refusal = await refusal_of(nodes[leader].admin.TransferLeadership(request, timeout=CALL_TIMEOUT_S))
    assert (refusal.status, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "UNKNOWN_MEMBER")
    request = admin_pb2.TransferLeadershipRequest(target_id=target)
    response = await nodes[leader].admin.TransferLeadership(request, timeout=CALL_TIMEOUT_S)
    assert response.leader_id == target
    assert response.term > before.term
    assert await nodes.leader() == target
    await nodes[target].append(b"under the new leader")


async def test_a_retry_after_a_failover_is_not_doubled(nodes: Nodes) -> None:
    old = await nodes.leader()
    producer = await producer_at(nodes, old)
    first = await nodes[old].append(b"a", b"b", producer_id=producer, base_sequence=0)
    await nodes.cluster.kill(old)
    new = await nodes.leader()
    assert new != old
    assert await nodes[new].append(b"a", b"b", producer_id=producer, base_sequence=0) == first
    ack = await nodes[new].append(b"c", producer_id=producer, base_sequence=2)
    assert (ack.base_index, ack.term > first.term) == (first.base_index + 2, True)
    assert await read(nodes, new, first.base_index) == [b"a", b"b", b"c"]
    await nodes.restart(old)
    await nodes.settled()
    assert await read(nodes, old, first.base_index, consistency=COMMITTED) == [b"a", b"b", b"c"]


# Producers by name, and segments -------------------------------------------------------------------------------------


async def test_a_name_stands_for_one_producer_and_tells_its_epoch(nodes: Nodes) -> None:
    leader = nodes[await nodes.leader()]
    named = log_pb2.InitProducerRequest(name="import of June")
    first = await leader.log.InitProducer(named, timeout=CALL_TIMEOUT_S)
    await leader.append_stream(batch(b"x", producer_id=first.producer_id, producer_epoch=4))
    again = await leader.log.InitProducer(named, timeout=CALL_TIMEOUT_S)
    assert (again.producer_id, again.producer_epoch) == (first.producer_id, 4)


async def test_a_name_is_not_too_long(nodes: Nodes) -> None:
    leader = nodes[await nodes.leader()]
    refusal = await refusal_of(leader.log.InitProducer(log_pb2.InitProducerRequest(name="n" * 256)))
    assert refusal.reason == "UNEXPECTED_ARGUMENT"


async def test_segments_cover_the_log_on_every_node(nodes: Nodes) -> None:
    end = (await nodes.settled())[0] + 1
    for node_id in nodes.ids:
        listed = await nodes[node_id].log.ListSegments(log_pb2.ListSegmentsRequest(), timeout=CALL_TIMEOUT_S)
        assert (listed.segments[0].base_index, listed.segments[-1].end_index, listed.commit_index) == (0, end, end - 1)

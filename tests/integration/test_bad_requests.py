"""What must be refused at the API: typed, one line each, nothing written, nobody hurt."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
import pytest_asyncio

from dledger.common.batch import build_body, crc32c
from dledger.v1 import admin_pb2, log_pb2
from tests.integration.bad_input import nothing_written_nobody_hurt, unimpressed
from tests.integration.nodes import CALL_TIMEOUT_S, Nodes, Stubs, everything, refusal_of

MIB = 1 << 20
MOST_RECORD_BYTES, MOST_BATCH_BYTES = 1 * MIB, 4 * MIB
Stream = log_pb2.AppendStreamRequest
Call = Callable[[Stubs], Any]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    async with unimpressed(tmp_path_factory.mktemp("bad-requests")) as started:
        yield started


def raw(body: bytes, count: int, **fields: Any) -> Stream:
    """Whatever is wrong with it, its crc is right."""
    wanted: dict[str, Any] = {"count": count, "body_crc": crc32c(body), "body": body} | fields
    return Stream(**wanted)


def offsets(*values: int, data: bytes = b"abcdef") -> bytes:
    return struct.pack(f"<{len(values)}i", *values) + data


def append(*records: bytes, **fields: Any) -> Call:
    return lambda node: node.append(*records, **fields)


def get(index: int, **fields: Any) -> Call:
    return lambda node: node.get(index, **fields)


def read(start: int, **fields: Any) -> Call:
    request = log_pb2.ReadRequest(start_index=start, **fields)
    return lambda node: everything(node.log.Read(request, timeout=CALL_TIMEOUT_S))


def stream(*requests: Stream) -> Call:
    return lambda node: node.append_stream(*requests)


def get_stream(*indexes: int, **fields: Any) -> Call:
    request = log_pb2.GetStreamRequest(indexes=indexes, **fields)
    return lambda node: everything(node.log.GetStream(iter([request]), timeout=CALL_TIMEOUT_S))


GOOD = build_body([b"abc", b"", b"def"])

AT_THE_API: dict[str, tuple[Call, str, str]] = {
    "append to an unknown group": (append(b"x", group="other"), "NOT_FOUND", "UNKNOWN_GROUP"),
    "stream to an unknown group": (stream(raw(GOOD, 3, group="other")), "NOT_FOUND", "UNKNOWN_GROUP"),
    "get from an unknown group": (get(0, group="other"), "NOT_FOUND", "UNKNOWN_GROUP"),
    "gets from an unknown group": (get_stream(0, group="other"), "NOT_FOUND", "UNKNOWN_GROUP"),
    "read from an unknown group": (read(0, group="../default"), "NOT_FOUND", "UNKNOWN_GROUP"),
    "status of an unknown group": (
        lambda node: node.admin.Status(admin_pb2.StatusRequest(group="other")),
        "NOT_FOUND",
        "UNKNOWN_GROUP",
    ),
    "metadata of an unknown group": (
        lambda node: node.log.GetMetadata(log_pb2.GetMetadataRequest(group="other")),
        "NOT_FOUND",
        "UNKNOWN_GROUP",
    ),
    "a producer of an unknown group": (
        lambda node: node.log.InitProducer(log_pb2.InitProducerRequest(group="other")),
        "NOT_FOUND",
        "UNKNOWN_GROUP",
    ),
    "get from a group with an endless name": (get(0, group="x" * 1_000_000), "NOT_FOUND", "UNKNOWN_GROUP"),
    "get behind the end": (get(1 << 40), "OUT_OF_RANGE", "INDEX_OUT_OF_RANGE"),
    "get of a negative index": (get(-1), "OUT_OF_RANGE", "INDEX_LESS_THAN_LOCAL_BEGIN"),
    "get of the least index": (get(-(1 << 63)), "OUT_OF_RANGE", "INDEX_LESS_THAN_LOCAL_BEGIN"),
    "committed get of a negative index": (
        get(-1, consistency=log_pb2.CONSISTENCY_COMMITTED),
        "OUT_OF_RANGE",
        "INDEX_LESS_THAN_LOCAL_BEGIN",
    ),
    "read from behind the end": (read((1 << 63) - 1), "OUT_OF_RANGE", "INDEX_OUT_OF_RANGE"),
    "read from a negative index": (read(-1), "OUT_OF_RANGE", "INDEX_LESS_THAN_LOCAL_BEGIN"),
    "follow from a negative index": (read(-5, follow=True), "OUT_OF_RANGE", "INDEX_LESS_THAN_LOCAL_BEGIN"),
    "read to a negative index": (read(0, end_index=-1), "INVALID_ARGUMENT", "UNEXPECTED_ARGUMENT"),
    "too many gets at once": (get_stream(*[0] * 10_001), "INVALID_ARGUMENT", "BATCH_TOO_LARGE"),
    "an empty append": (append(), "INVALID_ARGUMENT", "REQUEST_WITH_EMPTY_BODYS"),
    "a record too large": (append(bytes(MOST_RECORD_BYTES + 1)), "INVALID_ARGUMENT", "RECORD_TOO_LARGE"),
    "a record too large between others": (
        append(b"a", bytes(MOST_RECORD_BYTES + 1), b"c"),
        "INVALID_ARGUMENT",
        "RECORD_TOO_LARGE",
    ),
    "a record too large for any batch": (append(bytes(5 * MIB)), "INVALID_ARGUMENT", "RECORD_TOO_LARGE"),
    "a batch too large": (append(*[bytes(MIB)] * 4), "INVALID_ARGUMENT", "BATCH_TOO_LARGE"),
    "a stream's record too large": (
        stream(raw(build_body([bytes(MOST_RECORD_BYTES + 1)]), 1)),
        "INVALID_ARGUMENT",
        "RECORD_TOO_LARGE",
    ),
    "a stream's batch too large": (
        stream(raw(build_body([bytes(MIB)] * 4), 4)),
        "INVALID_ARGUMENT",
        "BATCH_TOO_LARGE",
    ),
}

LIES: dict[str, Stream] = {
    "nothing at all": Stream(),
    "count 0, empty body": raw(b"", 0),
    "count 0, no records": raw(offsets(0, data=b""), 0),
    "count 0, records": raw(GOOD, 0),
    "count too small": raw(GOOD, 2),
    "count too large": raw(GOOD, 4),
    "count far too large": raw(GOOD, 0xFFFF_FFFF),
    "count that wraps round in 32 bits": raw(GOOD, 0x3FFF_FFFF),
    "first offset above 0": raw(offsets(1, 3, 6), 2),
    "first offset below 0": raw(offsets(-1, 3, 6), 2),
    "descending offsets": raw(offsets(0, 5, 3, 6), 3),
    "an offset below 0": raw(offsets(0, -3, 6), 2),
    "an offset behind the end": raw(offsets(0, 7, 6), 2),
    "last offset before the end": raw(offsets(0, 3, 5), 2),
    "last offset behind the end": raw(offsets(0, 3, 7), 2),
    "last offset far behind the end": raw(offsets(0, 3, 0x7FFF_FFFF), 2),
    "offsets cut off": raw(offsets(0, 3, 6, data=b"")[:10], 2),
    "a body without its last byte": raw(GOOD[:-1], 3),
    "a body with a byte more": raw(GOOD + b"x", 3),
    "big-endian offsets": raw(struct.pack(">3i", 0, 3, 6) + b"abcdef", 2),
    "crc of something else": raw(GOOD, 3, body_crc=crc32c(b"something else")),
    "crc 0": raw(GOOD, 3, body_crc=0),
    "one bit of the body": raw(GOOD[:-1] + b"g", 3, body_crc=crc32c(GOOD)),
}
AT_THE_API |= {name: (stream(lie), "INVALID_ARGUMENT", "CORRUPT_BATCH") for name, lie in LIES.items()}


async def test_bad_requests_are_refused_with_their_own_codes(nodes: Nodes) -> None:
    wrong = []
    async with nothing_written_nobody_hurt(nodes) as leader:
        of_directory = nodes[(await leader.status("meta")).leader_id]  # who alone can say that there is no such group
        for name, (call, status, reason) in AT_THE_API.items():
            refusal = await refusal_of(call(of_directory if reason == "UNKNOWN_GROUP" else leader))
            if (refusal.status.name, refusal.reason) != (status, reason):
                wrong.append((name, refusal))
    assert wrong == []


async def test_the_largest_record_and_the_largest_batch_are_not_refused(nodes: Nodes) -> None:
    leader = nodes[await nodes.leader()]
    await leader.append(bytes(MOST_RECORD_BYTES))
    room = MOST_BATCH_BYTES - 4 * 5
    assert (await leader.append(*[bytes(room // 4)] * 4)).count == 4
    body = build_body([bytes(room // 4)] * 4)
    [answer] = await leader.append_stream(raw(body, 4))
    assert answer.count == 4


@pytest.mark.parametrize("method", ["LogService/Append", "LogService/Get", "AdminService/Status"])
async def test_what_is_no_request_is_refused_like_any_other(nodes: Nodes, method: str) -> None:
    async with nothing_written_nobody_hurt(nodes) as leader:
        nonsense: Any = leader.channel.unary_unary(f"/dledger.v1.{method}")
        refusal = await refusal_of(nonsense(b"\xff" * 100, timeout=CALL_TIMEOUT_S))
    assert (refusal.status.name, refusal.reason) == ("INVALID_ARGUMENT", "UNEXPECTED_ARGUMENT")
    assert "Traceback" not in "".join(map(nodes.log_of, nodes.ids))


async def test_what_grpc_itself_refuses_hurts_nobody(nodes: Nodes) -> None:
    async with nothing_written_nobody_hurt(nodes) as leader:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await leader.append(*[bytes(MIB)] * 20)
        assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        unknown: Any = leader.channel.unary_unary("/dledger.v1.LogService/Drop")
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await unknown(b"", timeout=CALL_TIMEOUT_S)
        assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED

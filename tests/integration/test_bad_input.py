"""What must be refused at the API, at the start and on the peer port: one line each, nothing written, nobody hurt."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import struct
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
import pytest_asyncio

from dledger.batch import build_body, crc32c
from dledger.cli.cluster import LocalNode
from dledger.config_file import format_peers
from dledger.transport.framing import PREFIX_BYTES, pack
from dledger.v1 import admin_pb2, log_pb2
from dledger.v1.raft_pb2 import Hello
from tests.integration.nodes import (
    CALL_TIMEOUT_S,
    DEADLINE_S,
    Nodes,
    Stubs,
    alive,
    eventually,
    everything,
    refusal_of,
    running,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

MIB = 1 << 20
MOST_RECORD_BYTES, MOST_BATCH_BYTES = 1 * MIB, 4 * MIB
Stream = log_pb2.AppendStreamRequest
LOG_LINE = r"\d{4}-\d\d-\d\dT.* (info|warning) +dledger\."
Call = Callable[[Stubs], Any]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def nodes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nodes]:
    async with running(tmp_path_factory.mktemp("bad-input")) as started:
        await started[await started.leader()].append(b"good", b"before")
        yield started


@asynccontextmanager
async def nothing_written_nobody_hurt(nodes: Nodes) -> AsyncIterator[Stubs]:
    """Around bad input: every node's log is what it was, every process lives, and appends go on."""
    before, pids = await nodes.settled(), nodes.pids()
    yield nodes[before[-1]]
    assert await nodes.settled() == before
    assert nodes.pids() == pids
    assert all(map(alive, pids.values()))
    ack = await nodes[await nodes.leader()].append(b"still here")
    assert ack.base_index == before[0] + 1


# At the API ----------------------------------------------------------------------------------------------------------


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
        for name, (call, status, reason) in AT_THE_API.items():
            refusal = await refusal_of(call(leader))
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


async def test_what_grpc_itself_refuses_hurts_nobody(nodes: Nodes) -> None:
    async with nothing_written_nobody_hurt(nodes) as leader:
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await leader.append(*[bytes(MIB)] * 20)
        assert failure.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        nonsense: Any = leader.channel.unary_unary("/dledger.v1.LogService/Append")
        with pytest.raises(grpc.aio.AioRpcError):
            await nonsense(b"\xff" * 100, timeout=CALL_TIMEOUT_S)
        unknown: Any = leader.channel.unary_unary("/dledger.v1.LogService/Drop")
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await unknown(b"", timeout=CALL_TIMEOUT_S)
        assert failure.value.code() is grpc.StatusCode.UNIMPLEMENTED


# At the process ------------------------------------------------------------------------------------------------------


class Ended(NamedTuple):
    code: int
    last_line: str
    output: str


@asynccontextmanager
async def serving(*flags: str, output: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """``dledger serve`` on its own, killed in the end if it is still there."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("DLEDGER_")}
    with output.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "dledger", "serve", *flags, stdout=log, stderr=log, env=environment
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def refused(*flags: str, output: Path) -> Ended:
    """Runs ``dledger serve``, which must end by itself."""
    async with serving(*flags, output=output) as process, asyncio.timeout(DEADLINE_S):
        code = await process.wait()
    said = output.read_text()
    *logged, last_line = said.splitlines()
    assert last_line.startswith("dledger: ")
    assert [line for line in logged if not re.match(LOG_LINE, line)] == []
    return Ended(code, last_line, said)


def files_below(directory: Path) -> dict[str, bytes]:
    """All but the LOCK, which names the last process that held it."""
    files = (path for path in sorted(directory.rglob("*")) if path.is_file() and path.name != "LOCK")
    return {str(path): path.read_bytes() for path in files}


def peers_of(nodes: Nodes) -> dict[str, str]:
    return {node.id: node.peer_address for node in nodes.cluster.nodes.values()}


def flags_of(node: LocalNode, peers: dict[str, str], data: Path) -> list[str]:
    return ["--id", node.id, "--peers", format_peers(peers), "--data", str(data)]


async def test_a_data_directory_in_use_is_refused(nodes: Nodes, tmp_path: Path) -> None:
    node = nodes.cluster.nodes["n0"]
    async with nothing_written_nobody_hurt(nodes):
        ended = await refused(*flags_of(node, peers_of(nodes), node.data_dir), output=tmp_path / "log")
    assert ended.code == 2
    assert f"the data directory {node.data_dir} is in use by process {nodes.pids()['n0']}: stop it" in ended.last_line


async def test_a_data_directory_of_another_node_is_refused_and_stays_as_it_is(nodes: Nodes, tmp_path: Path) -> None:
    follower = (await nodes.followers())[0]
    other = next(node for node in nodes.cluster.nodes.values() if node.id != follower)
    before = await nodes.settled()
    assert await nodes.terminate(follower) == [0]
    directory = nodes.cluster.nodes[follower].data_dir
    files = files_below(directory)
    flags = flags_of(other, {other.id: "127.0.0.1:1"}, directory)
    ended = await refused(*flags, "--grpc-port", "2", "--http-port", "0", output=tmp_path / "log")
    assert ended.code == 2
    assert f"belongs to node {follower!r}, not {other.id!r}: check --id and --data" in ended.last_line
    assert files_below(directory) == files
    await nodes.restart(follower)
    assert await nodes.settled() == before


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('durabilty = "fsync"', "has an unknown key 'durabilty': did you mean 'durability'?"),
        ("[limits]\nmax_batch = 1", "has an unknown key 'max_batch': did you mean 'max_batch_bytes'?"),
        ('durability = "sometimes"', "cannot be 'sometimes': choose fsync, interval, none"),
        ("id = ", "is not TOML"),
    ],
)
async def test_a_configuration_that_says_what_is_not_known_is_refused_before_anything_is_made(
    tmp_path: Path, content: str, words: str
) -> None:
    (tmp_path / "n0.toml").write_text(content)
    flags = ["--config", str(tmp_path / "n0.toml"), "--id", "n0", "--peers", "n0=127.0.0.1:1"]
    ended = await refused(*flags, "--data", str(tmp_path / "data"), output=tmp_path / "log")
    assert ended.code == 2
    assert words in ended.last_line
    assert ended.output.count("\n") == 1
    assert not (tmp_path / "data").exists()


@contextmanager
def port_taken() -> Iterator[int]:
    with closing(socket.socket()) as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


@pytest.mark.parametrize("purpose", ["peer", "grpc", "http"])
async def test_a_port_in_use_is_named_and_the_node_ends_before_it_stands_for_election(
    tmp_path: Path, purpose: str
) -> None:
    with port_taken() as taken, closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        other = free.getsockname()[1]
        free.close()
        peer_port = taken if purpose == "peer" else other
        flags = ["--id", "n0", "--peers", f"n0=127.0.0.1:{peer_port}", "--data", str(tmp_path / "n0")]
        if purpose in ("grpc", "http"):
            flags += [f"--{purpose}-port", str(taken)]
        ended = await refused(*flags, output=tmp_path / "log")
    assert ended.code == 2
    assert f"127.0.0.1:{taken}" in ended.last_line
    assert "role changed" not in ended.output


# Between nodes -------------------------------------------------------------------------------------------------------


async def says(log: Path, *words: str) -> None:
    """The file has one line with all of these words."""

    async def said() -> bool:
        return any(all(word in line for word in words) for line in log.read_text().splitlines())

    await eventually(said, f"{log} says {words}")


def elsewhere(nodes: Nodes, node_id: str) -> dict[str, str]:
    """The peers as a second node of this id sees them: its own address is another one."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    return peers_of(nodes) | {node_id: address}


async def test_a_second_node_with_the_same_id_is_turned_away(nodes: Nodes, tmp_path: Path) -> None:
    node = nodes.cluster.nodes[(await nodes.followers())[0]]
    flags = flags_of(node, elsewhere(nodes, node.id), tmp_path / "second")
    async with nothing_written_nobody_hurt(nodes) as leader, serving(*flags, output=tmp_path / "log"):
        words = f"a node {node.id} is connected already; stop one of the two, or give it another --id"
        await says(tmp_path / "log", "cannot connect to a peer", "UNEXPECTED_MEMBER", words)
        for other in nodes.ids:
            if other != node.id:
                await says(nodes.cluster.nodes[other].log_file, "UNEXPECTED_MEMBER", words)
        assert (await leader.status()).role == "leader"


async def test_a_node_of_another_cluster_is_turned_away(nodes: Nodes, tmp_path: Path) -> None:
    """It took a member's place, address and all; the member comes back unharmed."""
    place = (await nodes.followers())[0]
    node = nodes.cluster.nodes[place]
    cluster_id = (await nodes[place].status()).cluster_id
    last_index, *_ = await nodes.settled()
    await nodes.cluster.kill(place)
    flags = flags_of(node, peers_of(nodes), tmp_path / "stranger")
    async with serving(*flags, "--cluster-id", "another", output=tmp_path / "log"):
        words = f"{place} belongs to cluster another, "
        await says(tmp_path / "log", "UNKNOWN_CLUSTER", words, cluster_id, "check its --peers and its data directory")
        for other in nodes.running:
            await says(nodes.cluster.nodes[other].log_file, "UNKNOWN_CLUSTER", words)
        leader = await nodes.leader()
        assert (await nodes[leader].append(b"without it")).base_index == last_index + 1
        status = await nodes[place].status()
        assert (status.last_index, status.position, status.cluster_id) == (-1, 0, "another")
        assert status.role != "leader"
    await nodes.restart(place)
    assert (await nodes.settled())[0] == last_index + 1


async def test_a_directory_of_another_cluster_is_refused(nodes: Nodes, tmp_path: Path) -> None:
    place = (await nodes.followers())[0]
    node = nodes.cluster.nodes[place]
    cluster_id = (await nodes[place].status()).cluster_id
    assert await nodes.terminate(place) == [0]
    flags = flags_of(node, peers_of(nodes), node.data_dir)
    ended = await refused(*flags, "--cluster-id", "another", output=tmp_path / "log")
    assert ended.code == 2
    assert f"belongs to cluster {cluster_id}, not another: fix --cluster-id" in ended.last_line
    await nodes.restart(place)


def hello(**fields: Any) -> bytes:
    wanted: dict[str, Any] = {"version": 1, "node_uuid": b"u" * 16, "start_count": 1} | fields
    return b"".join(pack(Hello(**wanted).SerializeToString()))


async def answer_to(address: str, first: bytes) -> bytes:
    """All that a node answers to ``first`` on its peer port until it closes the connection."""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(first)
        async with asyncio.timeout(DEADLINE_S):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
        await asyncio.wait([asyncio.ensure_future(writer.wait_closed())])


REFUSED_HELLOS: dict[str, tuple[dict[str, Any], str]] = {
    "another version": ({"version": 2}, "UNSUPPORTED_VERSION"),
    "another cluster": ({"cluster_id": "another"}, "UNKNOWN_CLUSTER"),
    "a stranger": ({"node_id": "n9"}, "UNKNOWN_MEMBER"),
    "the node's own id": ({"node_id": "n0"}, "UNEXPECTED_MEMBER"),
    "a second of the same id": ({}, "UNEXPECTED_MEMBER"),
    "meant for another": ({"expected_node_id": "n2"}, "UNEXPECTED_MEMBER"),
}


async def test_hellos_that_are_refused_are_answered_with_the_reason(nodes: Nodes) -> None:
    address = nodes.cluster.nodes["n0"].peer_address
    told = {}
    async with nothing_written_nobody_hurt(nodes):
        for name, (fields, _) in REFUSED_HELLOS.items():
            answer = await answer_to(address, hello(**{"node_id": "n1", "expected_node_id": "n0"} | fields))
            told[name] = Hello.FromString(answer[PREFIX_BYTES:]).refusal_reason
    assert told == {name: reason for name, (_, reason) in REFUSED_HELLOS.items()}


async def test_noise_on_the_peer_port_is_not_answered(nodes: Nodes) -> None:
    noise = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        bytes(100),
        b"\xff" * 10_000,
        struct.pack("<III", 1 << 31, 10, 0),
        hello(node_id="n1\n", expected_node_id="n0"),
        hello(node_id="n1", expected_node_id="n0", node_uuid=b""),
    ]
    async with nothing_written_nobody_hurt(nodes):
        for node in nodes.cluster.nodes.values():
            assert await asyncio.gather(*(answer_to(node.peer_address, first) for first in noise)) == [b""] * len(noise)
    for node_id in nodes.ids:
        assert "closed a connection from a peer" in nodes.log_of(node_id)


async def test_after_all_of_it_no_node_has_said_a_word_of_trouble(nodes: Nodes) -> None:
    lines = chain.from_iterable(nodes.log_of(node_id).splitlines() for node_id in nodes.ids)
    # What is no protobuf is refused inside gRPC, which says so itself.
    ours = [line for line in lines if " grpc._cython.cygrpc: " not in line]
    assert [line for line in ours if " error " in line or " critical " in line or "Traceback" in line] == []

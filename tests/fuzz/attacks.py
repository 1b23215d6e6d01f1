"""What strangers and clients send to the ports of real nodes; each attack says how it ended.

A request is mutated from a good one, and now and then still is one: its records are unique, for it to be told what it
has brought into the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from random import Random
from typing import Any, NamedTuple

import grpc
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

from dledger.common.batch import build_body, check_body, crc32c, records_of
from dledger.common.config import Limits
from dledger.common.errors import Code, DLedgerError
from dledger.common.types import NodeId
from dledger.raft import codec
from dledger.transport.framing import MAX_HELLO_BYTES, MessageReader, pack
from dledger.transport.peer import MAX_MESSAGE_BYTES
from dledger.v1 import admin_pb2, log_pb2
from dledger.v1 import raft_pb2 as pb
from tests.fuzz import http2
from tests.fuzz.mutate import mutate_message, mutated_bytes
from tests.fuzz.recorded import Recorded

CALL_TIMEOUT_S = 20.0
FOLLOW_TIMEOUT_S = 0.05
CLOSED_WITHIN_S = 20.0
_TYPED = {code.value for code in Code}
_PATHS = (
    *(b"/dledger.v1.LogService/" + name for name in (b"Append", b"AppendStream", b"Get", b"GetStream", b"Read")),
    *(b"/dledger.v1.AdminService/Status", b"/grpc.health.v1.Health/Watch", b"/none", b""),
)
"""Called with messages that no service carries out."""
_GET = b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: */*\r\nContent-Length: 3\r\n\r\nabc"


class Method(NamedTuple):
    path: str
    request: type[Message]
    requests_stream: bool = False
    responses_stream: bool = False


_LOG, _ADMIN = "/dledger.v1.LogService/", "/dledger.v1.AdminService/"
APPEND = Method(f"{_LOG}Append", log_pb2.AppendRequest)
APPEND_STREAM = Method(f"{_LOG}AppendStream", log_pb2.AppendStreamRequest, requests_stream=True, responses_stream=True)
READ = Method(f"{_LOG}Read", log_pb2.ReadRequest, responses_stream=True)
METHODS = (
    APPEND,
    APPEND_STREAM,
    Method(f"{_LOG}Get", log_pb2.GetRequest),
    Method(f"{_LOG}GetStream", log_pb2.GetStreamRequest, requests_stream=True, responses_stream=True),
    READ,
    Method(f"{_LOG}GetMetadata", log_pb2.GetMetadataRequest),
    Method(f"{_LOG}InitProducer", log_pb2.InitProducerRequest),
    Method(f"{_ADMIN}Status", admin_pb2.StatusRequest),
    Method(f"{_ADMIN}TransferLeadership", admin_pb2.TransferLeadershipRequest),
    Method(f"{_ADMIN}AddLearner", admin_pb2.AddLearnerRequest),
    Method(f"{_ADMIN}PromoteMember", admin_pb2.PromoteMemberRequest),
    Method(f"{_ADMIN}RemoveMember", admin_pb2.RemoveMemberRequest),
    Method(f"{_ADMIN}ReadmitMember", admin_pb2.ReadmitMemberRequest),
    Method(f"{_ADMIN}SetPreferredLeaders", admin_pb2.SetPreferredLeadersRequest),
    Method(f"{_ADMIN}Trim", admin_pb2.TrimRequest),
    Method(f"{_ADMIN}SetRetention", admin_pb2.SetRetentionRequest),
)
_UNKNOWN = {Code.WAIT_QUORUM_ACK_TIMEOUT.value, Code.TERM_CHANGED.value}
_HIDDEN = "hidden by the client"


class Sent(NamedTuple):
    """One call: its requests as they went out, and the records that each may bring into the log."""

    method: Method
    payloads: list[bytes]
    records: list[list[bytes]]


def make_call(random: Random) -> Sent:
    method = random.choice(METHODS)
    payloads = [_payload(random, method) for _ in range(random.randint(1, 3) if method.requests_stream else 1)]
    return Sent(method, payloads, [_records(method, payload) for payload in payloads])


def _payload(random: Random, method: Method) -> bytes:
    request = _good_request(random, method)
    if random.random() < 0.7:
        mutate_message(random, request)
    payload = request.SerializeToString()
    if random.random() < 0.4:
        payload = mutated_bytes(random, payload)
    return _harmless(method, payload)


def _good_request(random: Random, method: Method) -> Any:
    request: Any = method.request()
    if isinstance(request, log_pb2.AppendRequest):
        request.records.extend(_records_of_its_own(random, 3))
    elif isinstance(request, log_pb2.AppendStreamRequest):
        count = random.choice((1, 3, 20))
        request.body = build_body(_records_of_its_own(random, count))
        if random.random() < 0.5:
            request.body = mutated_bytes(random, request.body)
        request.count = count if random.random() < 0.7 else random.choice((1, 3, 20))
        request.body_crc = crc32c(request.body)
    elif isinstance(request, log_pb2.GetStreamRequest):
        request.indexes.extend([0, 1, random.randrange(100)])
    return request


def _records_of_its_own(random: Random, count: int) -> list[bytes]:
    """Now and then an empty one behind them, as such a record has its own ways."""
    token = random.randbytes(12)
    return [token + bytes([at]) + bytes(random.choice((0, 100))) for at in range(count)] + [b""] * (
        random.random() < 0.1
    )


def _harmless(method: Method, payload: bytes) -> bytes:
    """What an operator may rightly ask for is asked for as a dry run, or not at all."""
    fields = method.request.DESCRIPTOR.fields_by_name
    try:
        request: Any = method.request.FromString(payload)
    except DecodeError:
        return payload
    if "dry_run" in fields:
        request.dry_run = True
    elif isinstance(request, admin_pb2.TransferLeadershipRequest):
        request.target_id = f"not {request.target_id}"
    elif isinstance(request, admin_pb2.SetPreferredLeadersRequest):
        request.preferred.add(id="nobody", priority=1)
    else:
        return payload
    return bytes(request.SerializeToString())


def _records(method: Method, payload: bytes) -> list[bytes]:
    try:
        if method is APPEND:
            return list(log_pb2.AppendRequest.FromString(payload).records)
        if method is APPEND_STREAM:
            request = log_pb2.AppendStreamRequest.FromString(payload)
            check_body(request.body, request.count, Limits().max_record_bytes)
            return records_of(request.body, request.count)
    except (DecodeError, DLedgerError):
        pass
    return []


class Ended(NamedTuple):
    """How a call ended: OK or the refusal's code; and what was answered before that."""

    how: str
    answers: list[bytes]

    @property
    def is_outcome_known(self) -> bool:
        """What was not answered is surely not in the log: of a stream, what was behind the refused one neither."""
        return self.how not in _UNKNOWN and self.how != _HIDDEN


async def call(channel: grpc.aio.Channel, sent: Sent) -> Ended:
    """Raises AssertionError for an end that is not one of ours."""
    method, answers = sent.method, list[bytes]()
    is_read = method is READ
    timeout_s = FOLLOW_TIMEOUT_S if is_read else CALL_TIMEOUT_S
    try:
        async for answer in _answers(channel, sent, timeout_s):
            answers.append(answer)
    except grpc.aio.AioRpcError as failure:
        if is_read and failure.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return Ended("follows", answers)
        return Ended(_typed(sent, failure), answers)
    return Ended("OK", answers)


async def _answers(channel: grpc.aio.Channel, sent: Sent, timeout_s: float) -> AsyncIterator[bytes]:
    """Bytes as they are, both ways."""
    method = sent.method
    if method.requests_stream:
        make: Any = channel.stream_stream(method.path)
        calling = make(iter(sent.payloads), timeout=timeout_s)
    elif method.responses_stream:
        make = channel.unary_stream(method.path)
        calling = make(sent.payloads[0], timeout=timeout_s)
    else:
        make = channel.unary_unary(method.path)
        yield await make(sent.payloads[0], timeout=timeout_s)
        return
    try:
        async for answer in calling:
            yield answer
    finally:
        calling.cancel()


def _typed(sent: Sent, failure: grpc.aio.AioRpcError) -> str:
    trailers = dict(failure.trailing_metadata() or ())
    details = trailers.get("grpc-status-details-bin")
    if details is None and sent.method.requests_stream and "Core" in str(failure.details()):
        return _HIDDEN  # grpc.aio, when a refusal comes while a request is written
    assert details is not None, f"an untyped refusal of {sent.method.path}: {failure.code()} {failure.details()!r}"
    status = status_pb2.Status.FromString(bytes(details))
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert info.reason in _TYPED, f"{sent.method.path} was refused with {info.reason!r}"
    assert info.reason != Code.INTERNAL_ERROR.value, f"{sent.method.path}: {failure.details()!r} for {sent.payloads!r}"
    assert str(failure.details()).isprintable(), f"{sent.method.path}: {failure.details()!r}"
    return str(info.reason)


# Raw connections -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Gone in the end, whatever is buffered."""
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


async def throw(address: str, data: bytes, *, pieces: int = 1, pause_s: float = 0.0) -> bytes:
    """Sends, ends, and takes what is answered until the node closes; it must, within its time. A node that cannot be
    reached has looked at nothing: that is not passed over."""
    answered: list[bytes] = []
    try:
        async with (
            asyncio.timeout(CLOSED_WITHIN_S),
            connected(address) as (reader, writer),
            asyncio.TaskGroup() as both,
        ):
            # Beside the sending: of a connection that is reset what has come and was not read yet would be lost.
            both.create_task(_take(reader, answered))
            size = len(data) // pieces + 1
            with suppress(OSError):  # closed meanwhile, as it may be
                for at in range(0, len(data), size):
                    writer.write(data[at : at + size])
                    await writer.drain()
                    await asyncio.sleep(pause_s)
                writer.write_eof()
    except TimeoutError:
        raise AssertionError(f"{address} keeps a connection that has ended, and began with {data[:100]!r}") from None
    except OSError as failure:
        raise AssertionError(f"{address} cannot be reached: {failure}") from None
    return b"".join(answered)


async def _take(reader: asyncio.StreamReader, answered: list[bytes]) -> None:
    with suppress(OSError):
        while piece := await reader.read(1 << 16):
            answered.append(piece)


def noise_for_grpc(random: Random) -> bytes:
    said = http2.conversation(random, _PATHS)
    return http2.HELLO + said if random.random() < 0.3 else mutated_bytes(random, http2.HELLO + said)


def noise_for_http(random: Random) -> bytes:
    return mutated_bytes(random, _GET) + b"\r\n\r\n"


def noise_for_peers(random: Random, hello: pb.Hello, messages: list[Recorded]) -> bytes:
    """A hello that is none, or says what nobody is; and messages behind it."""
    changed = pb.Hello()
    changed.CopyFrom(hello)
    if random.random() < 0.7:
        mutate_message(random, changed)
    wire = [b"".join(pack(changed.SerializeToString()[:16_000]))]
    wire += [b"".join(pack(each.header, [each.body])) for each in random.sample(messages, random.randint(0, 5))]
    return mutated_bytes(random, b"".join(wire))


class Session(NamedTuple):
    """What a member says from its hello on, and how many messages behind the hello that makes."""

    wire: bytes
    messages: int


def replay(random: Random, hello: pb.Hello, messages: list[Recorded], most: int) -> Session:
    """A member's session: its hello, then what was said in another one, in another order, mutated or not. It ends with
    the first message that a node refuses, as the node does not look at what comes behind that."""
    wire = [b"".join(pack(hello.SerializeToString()))]
    reader = MessageReader(MAX_MESSAGE_BYTES)
    for each in random.choices(messages, k=most):
        wire.append(_message(random, each, hello))
        if not _is_taken(reader, wire[-1], hello):
            break
    return Session(b"".join(wire), len(wire) - 1)


def _message(random: Random, each: Recorded, hello: pb.Hello) -> bytes:
    fields = pb.PeerMessage.FromString(each.header)
    if random.random() < 0.5:
        mutate_message(random, fields)
    _make_unbelievable(random, fields, hello)
    message = b"".join(pack(fields.SerializeToString()[:16_000], [each.body]))
    return (random.random() < 0.05 and mutated_bytes(random, message)) or message


def _is_taken(reader: MessageReader, message: bytes, hello: pb.Hello) -> bool:
    """Whether a node lets the message in, and waits for the next one. One that is not whole would take what is sent
    behind it for its own rest."""
    try:
        for raw in reader.feed(message):
            codec.decode(raw.header, raw.body, cluster_id=hello.cluster_id, sender=NodeId(hello.node_id))
    except DLedgerError:
        return False
    return not reader.buffered_bytes


def is_welcome(answered: bytes) -> bool:
    """Whether a node answered a hello, with one of its own that refuses nothing. Raises AssertionError for a refusal:
    then it has looked at nothing behind the hello."""
    for raw in MessageReader(MAX_HELLO_BYTES).feed(answered):
        refusal = pb.Hello.FromString(bytes(raw.header)).refusal_message
        assert not refusal, f"a member was refused: {refusal}"
        return True
    return False


def _make_unbelievable(random: Random, fields: pb.PeerMessage, hello: pb.Hello) -> None:
    """Of the member's cluster and in its own name, so that it is looked at; of a term that is over or out of reach, as
    else it would be a member's word (see members.py)."""
    if random.random() < 0.95:
        fields.cluster_id, fields.group = hello.cluster_id, "default"
    if fields.leader_id and random.random() < 0.9:
        fields.leader_id = hello.node_id
    fields.term = _unbelievable_term(random)
    for name in ("heartbeat_batch", "heartbeat_response_batch"):
        if fields.HasField(name):
            terms = getattr(fields, name).terms
            terms[:] = [_unbelievable_term(random) for _ in terms]


def _unbelievable_term(random: Random) -> int:
    return random.choice((0, 0, 1 << 40, 2**63, 2**64 - 1))

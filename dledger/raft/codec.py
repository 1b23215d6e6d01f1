"""Message ⇄ dledger.v1.PeerMessage and log frames: the one place that knows both.

Every message carries the cluster, the group, the term and, where only a leader speaks so, the leader; ``decode`` checks
that they fit the connection. Frames are neither copied nor changed; their checksums are verified here, before anybody
else sees them. Whether they link to the log is for whoever has the log. A RESET's small state, which may be far larger
than a header, follows it as raw bytes too, under the checksum it is stored with.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from itertools import pairwise
from typing import TypeVar, assert_never

from google.protobuf.message import DecodeError

from dledger.common.batch import Buffer
from dledger.common.errors import Code, error, quoted
from dledger.common.types import DiskState, LogPoint, NodeId, Position, Term
from dledger.disk.record import RecordKind, unpack_record
from dledger.log.frame.frame import Frame, parse_frames
from dledger.raft.messages import (
    Append,
    AppendResponse,
    Compare,
    CompareResponse,
    Fetch,
    FetchResponse,
    FetchResult,
    Heartbeat,
    HeartbeatResponse,
    Message,
    PushResult,
    Reset,
    ResetResponse,
    TakeLeadership,
    Truncate,
    TruncateResponse,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.transport.codec import Encoded
from dledger.v1 import raft_pb2 as pb

E = TypeVar("E", bound=IntEnum)


def encode(message: Message, *, cluster_id: str, sender: NodeId) -> Encoded:
    """What ``sender`` puts on the wire: the same bytes for every peer."""
    header = _header(message, sender)
    header.group = message.group
    header.term = message.term
    header.cluster_id = cluster_id
    return Encoded(header.SerializeToString(), _body(message))


def _body(message: Message) -> list[Buffer]:
    if isinstance(message, Append | FetchResponse):
        return [buffer for frame in message.frames for buffer in frame.buffers]
    return [message.log_state] if isinstance(message, Reset) else []


def _header(message: Message, sender: NodeId) -> pb.PeerMessage:
    """The fields that only some messages have."""
    match message:
        case Append():
            return pb.PeerMessage(
                kind=pb.MESSAGE_KIND_APPEND, leader_id=sender, commit_position=message.commit_position
            )
        case AppendResponse():
            return pb.PeerMessage(
                kind=pb.MESSAGE_KIND_APPEND_RESPONSE, result=message.result, position=message.position
            )
        case Heartbeat():
            return pb.PeerMessage(
                kind=pb.MESSAGE_KIND_HEARTBEAT,
                leader_id=sender,
                commit_position=message.commit_position,
                round=message.round,
            )
        case HeartbeatResponse():
            return pb.PeerMessage(
                kind=pb.MESSAGE_KIND_HEARTBEAT_RESPONSE,
                round=message.round,
                keeps_lease=message.keeps_lease,
                disk_state=message.disk,
                wall_clock_ms=message.wall_clock_ms,
                may_not_vote=not message.may_vote,
            )
        case VoteRequest() | VoteResponse():
            return _vote_header(message)
        case Compare() | CompareResponse() | Truncate() | TruncateResponse():
            return _compare_header(message, sender)
        case Reset():
            return pb.PeerMessage(kind=pb.MESSAGE_KIND_RESET, leader_id=sender, request_id=message.request_id)
        case ResetResponse():
            return pb.PeerMessage(
                kind=pb.MESSAGE_KIND_RESET_RESPONSE, result=message.result, request_id=message.request_id
            )
        case TakeLeadership():
            return pb.PeerMessage(kind=pb.MESSAGE_KIND_TAKE_LEADERSHIP, leader_id=sender, position=message.position)
        case Fetch() | FetchResponse():
            return _fetch_header(message)
        case _:
            assert_never(message)


def _vote_header(message: VoteRequest | VoteResponse) -> pb.PeerMessage:
    match message:
        case VoteRequest():
            return pb.PeerMessage(
                kind=pb.MESSAGE_KIND_VOTE_REQUEST,
                is_pre_vote=message.is_pre_vote,
                last_term=message.last_term,
                last_position=message.last_position,
                transfer_leader_id=message.transfer_leader_id,
            )
        case VoteResponse():
            return pb.PeerMessage(
                kind=pb.MESSAGE_KIND_VOTE_RESPONSE,
                is_pre_vote=message.is_pre_vote,
                request_term=message.request_term,
                result=message.result,
            )
        case _:
            assert_never(message)


def _compare_header(message: Compare | CompareResponse | Truncate | TruncateResponse, sender: NodeId) -> pb.PeerMessage:
    match message:
        case Compare() | Truncate():
            is_compare = isinstance(message, Compare)
            return pb.PeerMessage(
                kind=pb.MESSAGE_KIND_COMPARE if is_compare else pb.MESSAGE_KIND_TRUNCATE,
                leader_id=sender,
                position=message.point.position,
                position_term=message.point.term,
                chain=message.point.chain,
                request_id=message.request_id,
            )
        case CompareResponse():
            return pb.PeerMessage(
                kind=pb.MESSAGE_KIND_COMPARE_RESPONSE,
                result=message.result,
                position=message.position,
                position_term=message.position_term,
                request_id=message.request_id,
                admits_loss=message.admits_loss,
            )
        case TruncateResponse():
            return pb.PeerMessage(
                kind=pb.MESSAGE_KIND_TRUNCATE_RESPONSE, result=message.result, request_id=message.request_id
            )
        case _:
            assert_never(message)


def _fetch_header(message: Fetch | FetchResponse) -> pb.PeerMessage:
    match message:
        case Fetch():
            return pb.PeerMessage(
                kind=pb.MESSAGE_KIND_FETCH,
                position=message.previous.position,
                position_term=message.previous.term,
                chain=message.previous.chain,
                last_wanted=message.last_wanted,
                max_bytes=message.max_bytes,
                request_id=message.request_id,
            )
        case FetchResponse():
            return pb.PeerMessage(
                kind=pb.MESSAGE_KIND_FETCH_RESPONSE,
                result=message.result,
                request_id=message.request_id,
                position=message.end.position,
                position_term=message.end.term,
                chain=message.end.chain,
                start_position=message.start.position,
                start_term=message.start.term,
                start_chain=message.start.chain,
                voters=message.voters,
                leads=message.leads,
            )
        case _:
            assert_never(message)


def decode(header: Buffer, body: Buffer, *, cluster_id: str, sender: NodeId) -> Message:
    """The message that ``sender`` sent. Its frames share the memory of ``body``.

    Raises UNEXPECTED_ARGUMENT for what is not a message of this version, UNKNOWN_CLUSTER and UNEXPECTED_MEMBER for one
    of another cluster or leader, CORRUPT_LOG for a damaged frame or small state. An empty ``cluster_id``, here or
    there, is one that is not known yet, and fits all.
    """
    try:
        fields = pb.PeerMessage.FromString(bytes(header))
    except DecodeError as failure:
        raise error(Code.UNEXPECTED_ARGUMENT, f"a message of {sender} is not a PeerMessage: {failure}") from failure
    if fields.cluster_id != cluster_id and fields.cluster_id and cluster_id:
        raise error(
            Code.UNKNOWN_CLUSTER,
            f"{sender} sent a message of cluster {quoted(fields.cluster_id)}; this is {cluster_id!r}",
        )
    if not fields.group:
        raise error(Code.UNEXPECTED_ARGUMENT, f"a message of {sender} names no group")
    decoder = _DECODERS.get(fields.kind)
    if decoder is None:
        raise error(Code.UNEXPECTED_ARGUMENT, f"{sender} sent a message of the unknown kind {fields.kind}")
    if fields.kind in _FROM_LEADER and fields.leader_id != sender:
        raise error(Code.UNEXPECTED_MEMBER, f"{sender} speaks as leader in the name of {quoted(fields.leader_id)}")
    if len(body) and fields.kind not in _WITH_BODY:
        raise error(Code.UNEXPECTED_ARGUMENT, f"{sender} sent {len(body)} bytes behind a message of kind {fields.kind}")
    return decoder(fields, body)


def _append(m: pb.PeerMessage, body: Buffer) -> Append:
    return Append(m.group, Term(m.term), Position(m.commit_position), _consecutive(body))


def _consecutive(body: Buffer) -> tuple[Frame, ...]:
    frames = parse_frames(body)
    if any(after.header.position != before.header.position + 1 for before, after in pairwise(frames)):
        raise error(Code.UNEXPECTED_ARGUMENT, f"the frames of a message are not consecutive: {_span(frames)}")
    return tuple(frames)


def _span(frames: list[Frame]) -> str:
    return ", ".join(str(frame.header.position) for frame in frames[:10])


def _append_response(m: pb.PeerMessage, _: Buffer) -> AppendResponse:
    return AppendResponse(m.group, Term(m.term), _enum(PushResult, m.result), Position(m.position))


def _heartbeat(m: pb.PeerMessage, _: Buffer) -> Heartbeat:
    return Heartbeat(m.group, Term(m.term), Position(m.commit_position), m.round)


def _heartbeat_response(m: pb.PeerMessage, _: Buffer) -> HeartbeatResponse:
    disk = _enum(DiskState, m.disk_state)
    return HeartbeatResponse(m.group, Term(m.term), m.round, m.keeps_lease, disk, m.wall_clock_ms, not m.may_not_vote)


def _vote_request(m: pb.PeerMessage, _: Buffer) -> VoteRequest:
    return VoteRequest(
        m.group,
        Term(m.term),
        m.is_pre_vote,
        Term(m.last_term),
        Position(m.last_position),
        NodeId(m.transfer_leader_id),
    )


def _vote_response(m: pb.PeerMessage, _: Buffer) -> VoteResponse:
    result = _enum(VoteResult, m.result)
    return VoteResponse(m.group, Term(m.term), m.is_pre_vote, Term(m.request_term), result)


def _compare(m: pb.PeerMessage, _: Buffer) -> Compare:
    return Compare(m.group, Term(m.term), _point(m), m.request_id)


def _compare_response(m: pb.PeerMessage, _: Buffer) -> CompareResponse:
    result, last, last_term = _enum(PushResult, m.result), Position(m.position), Term(m.position_term)
    return CompareResponse(m.group, Term(m.term), result, last, last_term, m.request_id, m.admits_loss)


def _truncate(m: pb.PeerMessage, _: Buffer) -> Truncate:
    return Truncate(m.group, Term(m.term), _point(m), m.request_id)


def _truncate_response(m: pb.PeerMessage, _: Buffer) -> TruncateResponse:
    return TruncateResponse(m.group, Term(m.term), _enum(PushResult, m.result), m.request_id)


def _reset(m: pb.PeerMessage, body: Buffer) -> Reset:
    if unpack_record(RecordKind.LOG_STATE, body) is None:
        raise error(Code.CORRUPT_LOG, "the small state of a RESET does not match its checksum")
    return Reset(m.group, Term(m.term), bytes(body), m.request_id)


def _reset_response(m: pb.PeerMessage, _: Buffer) -> ResetResponse:
    return ResetResponse(m.group, Term(m.term), _enum(PushResult, m.result), m.request_id)


def _take_leadership(m: pb.PeerMessage, _: Buffer) -> TakeLeadership:
    return TakeLeadership(m.group, Term(m.term), Position(m.position))


def _fetch(m: pb.PeerMessage, _: Buffer) -> Fetch:
    return Fetch(m.group, Term(m.term), _point(m), Position(m.last_wanted), m.max_bytes, m.request_id)


def _fetch_response(m: pb.PeerMessage, body: Buffer) -> FetchResponse:
    start = LogPoint(Position(m.start_position), Term(m.start_term), m.start_chain)
    return FetchResponse(
        m.group,
        Term(m.term),
        _enum(FetchResult, m.result),
        m.request_id,
        frames=_consecutive(body),
        end=_point(m),
        start=start,
        voters=tuple(map(NodeId, m.voters)),
        leads=m.leads,
    )


def _point(m: pb.PeerMessage) -> LogPoint:
    return LogPoint(Position(m.position), Term(m.position_term), m.chain)


def _enum(kind: type[E], value: int) -> E:
    try:
        return kind(value)
    except ValueError as failure:
        raise error(Code.UNEXPECTED_ARGUMENT, f"{value} is not a {kind.__name__}") from failure


_DECODERS: dict[int, Callable[[pb.PeerMessage, Buffer], Message]] = {
    pb.MESSAGE_KIND_APPEND: _append,
    pb.MESSAGE_KIND_APPEND_RESPONSE: _append_response,
    pb.MESSAGE_KIND_HEARTBEAT: _heartbeat,
    pb.MESSAGE_KIND_HEARTBEAT_RESPONSE: _heartbeat_response,
    pb.MESSAGE_KIND_VOTE_REQUEST: _vote_request,
    pb.MESSAGE_KIND_VOTE_RESPONSE: _vote_response,
    pb.MESSAGE_KIND_COMPARE: _compare,
    pb.MESSAGE_KIND_COMPARE_RESPONSE: _compare_response,
    pb.MESSAGE_KIND_TRUNCATE: _truncate,
    pb.MESSAGE_KIND_TRUNCATE_RESPONSE: _truncate_response,
    pb.MESSAGE_KIND_TAKE_LEADERSHIP: _take_leadership,
    pb.MESSAGE_KIND_RESET: _reset,
    pb.MESSAGE_KIND_RESET_RESPONSE: _reset_response,
    pb.MESSAGE_KIND_FETCH: _fetch,
    pb.MESSAGE_KIND_FETCH_RESPONSE: _fetch_response,
}

_WITH_BODY = frozenset((pb.MESSAGE_KIND_APPEND, pb.MESSAGE_KIND_RESET, pb.MESSAGE_KIND_FETCH_RESPONSE))

_FROM_LEADER = frozenset(
    (
        pb.MESSAGE_KIND_APPEND,
        pb.MESSAGE_KIND_HEARTBEAT,
        pb.MESSAGE_KIND_COMPARE,
        pb.MESSAGE_KIND_TRUNCATE,
        pb.MESSAGE_KIND_TAKE_LEADERSHIP,
        pb.MESSAGE_KIND_RESET,
    )
)

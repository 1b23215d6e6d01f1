"""Message between nodes ⇄ dledger.v1.PeerMessage and log frames: the one place that knows both.

Every message carries the cluster, the group and the term. A message that only a leader sends carries the leader too.
``decode`` checks that they fit the connection. Frames are neither copied nor changed. Their checksums are verified
here, before anybody else sees them. Whether they link to the log is for the owner of the log to check. A RESET's small
state may be far larger than a header, so it follows as raw bytes too, under the checksum it is stored with.

``_KINDS`` is the table of all messages. A new one takes a message class, a message in raft.proto, a pair of functions
and a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from operator import not_
from typing import Any, Generic, TypeVar

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
    HeartbeatBatch,
    HeartbeatResponse,
    HeartbeatResponseBatch,
    MachineReport,
    PeerMessage,
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
from dledger.v1.raft_pb2 import PeerMessage as Pb

E = TypeVar("E", bound=IntEnum)
M = TypeVar("M", bound=PeerMessage)
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class _Kind(Generic[M, B]):
    """One kind of message, and how its body is written and read."""

    message: type[M]
    field: str
    """Its name in the oneof."""
    write: Callable[[M, B], None]
    """Fills the empty body."""
    read: Callable[[str, Term, B, Buffer], M]
    """Makes the message of the group, the term, the body and the bytes that follow."""
    from_leader: bool = False
    """Only the leader of its term sends it."""
    payload: Callable[[M], list[Buffer]] | None = None
    """The raw bytes that follow the header. None: there are none, and a message with some is refused."""
    is_batch: bool = False
    """Groups and terms are in the rows."""


def encode(message: PeerMessage, *, cluster_id: str, sender: NodeId) -> Encoded:
    """What ``sender`` puts on the wire: the same bytes for every peer."""
    kind = _BY_CLASS[type(message)]
    header = Pb(
        group=message.group, cluster_id=cluster_id, term=message.term, leader_id=sender if kind.from_leader else ""
    )
    body = getattr(header, kind.field)
    body.SetInParent()
    kind.write(message, body)
    return Encoded(header.SerializeToString(), kind.payload(message) if kind.payload is not None else [])


def decode(header: Buffer, body: Buffer, *, cluster_id: str, sender: NodeId) -> PeerMessage:
    """The message that ``sender`` sent. Its frames share the memory of ``body``.

    Raises UNEXPECTED_ARGUMENT unless it is a message of this version. Raises UNKNOWN_CLUSTER or UNEXPECTED_MEMBER for a
    message of another cluster or leader. Raises CORRUPT_LOG for a damaged frame or small state. An empty
    ``cluster_id``, here or there, is one that is not known yet, and fits all.
    """
    try:
        outer = Pb.FromString(header)  # type: ignore[arg-type]  # any buffer, and without a copy
    except DecodeError as failure:
        raise error(Code.UNEXPECTED_ARGUMENT, f"a message of {sender} is not a PeerMessage: {failure}") from failure
    # Every access to a field makes a new object: once each.
    theirs, group = outer.cluster_id, outer.group
    if theirs != cluster_id and theirs and cluster_id:
        raise error(
            Code.UNKNOWN_CLUSTER, f"{sender} sent a message of cluster {quoted(theirs)}; this is {cluster_id!r}"
        )
    kind = _BY_FIELD.get(outer.WhichOneof("body"))
    if kind is None:
        raise error(Code.UNEXPECTED_ARGUMENT, f"{sender} sent a message of an unknown kind")
    if not group and not kind.is_batch:
        raise error(Code.UNEXPECTED_ARGUMENT, f"a message of {sender} names no group")
    if kind.from_leader and outer.leader_id != sender:
        raise error(Code.UNEXPECTED_MEMBER, f"{sender} speaks as leader in the name of {quoted(outer.leader_id)}")
    if len(body) and kind.payload is None:
        raise error(Code.UNEXPECTED_ARGUMENT, f"{sender} sent {len(body)} bytes behind a message of kind {kind.field}")
    message: PeerMessage = kind.read(group, Term(outer.term), getattr(outer, kind.field), body)
    return message


def _write_append(message: Append, body: Pb.Append) -> None:
    body.commit_position = message.commit_position


def _read_append(group: str, term: Term, body: Pb.Append, raw: Buffer) -> Append:
    return Append(group, term, Position(body.commit_position), _consecutive(raw))


def _frames(message: Append | FetchResponse) -> list[Buffer]:
    return [buffer for frame in message.frames for buffer in frame.buffers]


def _consecutive(raw: Buffer) -> tuple[Frame, ...]:
    frames = parse_frames(raw)
    if any(after.header.position != before.header.position + 1 for before, after in pairwise(frames)):
        raise error(Code.UNEXPECTED_ARGUMENT, f"the frames of a message are not consecutive: {_span(frames)}")
    return tuple(frames)


def _span(frames: list[Frame]) -> str:
    return ", ".join(str(frame.header.position) for frame in frames[:10])


def _write_append_response(message: AppendResponse, body: Pb.AppendResponse) -> None:
    body.result = message.result
    body.position = message.position


def _read_append_response(group: str, term: Term, body: Pb.AppendResponse, _: Buffer) -> AppendResponse:
    return AppendResponse(group, term, _enum(PushResult, body.result), Position(body.position))


def _write_heartbeat(message: Heartbeat, body: Pb.Heartbeat) -> None:
    body.commit_position = message.commit_position
    body.round = message.round


def _read_heartbeat(group: str, term: Term, body: Pb.Heartbeat, _: Buffer) -> Heartbeat:
    return Heartbeat(group, term, Position(body.commit_position), body.round)


def _write_heartbeat_response(message: HeartbeatResponse, body: Pb.HeartbeatResponse) -> None:
    body.round = message.round
    body.keeps_lease = message.keeps_lease
    body.disk_state = message.disk
    body.wall_clock_ms = message.wall_clock_ms
    body.may_not_vote = not message.may_vote


def _read_heartbeat_response(group: str, term: Term, body: Pb.HeartbeatResponse, _: Buffer) -> HeartbeatResponse:
    return HeartbeatResponse(
        group,
        term,
        body.round,
        body.keeps_lease,
        _enum(DiskState, body.disk_state),
        body.wall_clock_ms,
        not body.may_not_vote,
    )


def _write_vote_request(message: VoteRequest, body: Pb.VoteRequest) -> None:
    body.is_pre_vote = message.is_pre_vote
    body.last_term = message.last_term
    body.last_position = message.last_position
    body.transfer_leader_id = message.transfer_leader_id


def _read_vote_request(group: str, term: Term, body: Pb.VoteRequest, _: Buffer) -> VoteRequest:
    return VoteRequest(
        group,
        term,
        body.is_pre_vote,
        Term(body.last_term),
        Position(body.last_position),
        NodeId(body.transfer_leader_id),
    )


def _write_vote_response(message: VoteResponse, body: Pb.VoteResponse) -> None:
    body.is_pre_vote = message.is_pre_vote
    body.request_term = message.request_term
    body.result = message.result
    body.wall_clock_ms = message.wall_clock_ms


def _read_vote_response(group: str, term: Term, body: Pb.VoteResponse, _: Buffer) -> VoteResponse:
    result = _enum(VoteResult, body.result)
    return VoteResponse(group, term, body.is_pre_vote, Term(body.request_term), result, body.wall_clock_ms)


def _write_compare(message: Compare, body: Pb.Compare) -> None:
    _write_point(message.point, body.point)
    body.request_id = message.request_id


def _read_compare(group: str, term: Term, body: Pb.Compare, _: Buffer) -> Compare:
    return Compare(group, term, _point(body.point), body.request_id)


def _write_compare_response(message: CompareResponse, body: Pb.CompareResponse) -> None:
    body.result = message.result
    body.position = message.position
    body.position_term = message.position_term
    body.request_id = message.request_id
    body.admits_loss = message.admits_loss


def _read_compare_response(group: str, term: Term, body: Pb.CompareResponse, _: Buffer) -> CompareResponse:
    return CompareResponse(
        group,
        term,
        _enum(PushResult, body.result),
        Position(body.position),
        Term(body.position_term),
        body.request_id,
        body.admits_loss,
    )


def _write_truncate(message: Truncate, body: Pb.Truncate) -> None:
    _write_point(message.point, body.point)
    body.request_id = message.request_id


def _read_truncate(group: str, term: Term, body: Pb.Truncate, _: Buffer) -> Truncate:
    return Truncate(group, term, _point(body.point), body.request_id)


def _write_truncate_response(message: TruncateResponse, body: Pb.TruncateResponse) -> None:
    body.result = message.result
    body.request_id = message.request_id


def _read_truncate_response(group: str, term: Term, body: Pb.TruncateResponse, _: Buffer) -> TruncateResponse:
    return TruncateResponse(group, term, _enum(PushResult, body.result), body.request_id)


def _write_reset(message: Reset, body: Pb.Reset) -> None:
    body.request_id = message.request_id


def _read_reset(group: str, term: Term, body: Pb.Reset, raw: Buffer) -> Reset:
    if unpack_record(RecordKind.LOG_STATE, raw) is None:
        raise error(Code.CORRUPT_LOG, "the small state of a RESET does not match its checksum")
    return Reset(group, term, bytes(raw), body.request_id)


def _log_state(message: Reset) -> list[Buffer]:
    return [message.log_state]


def _write_reset_response(message: ResetResponse, body: Pb.ResetResponse) -> None:
    body.result = message.result
    body.request_id = message.request_id


def _read_reset_response(group: str, term: Term, body: Pb.ResetResponse, _: Buffer) -> ResetResponse:
    return ResetResponse(group, term, _enum(PushResult, body.result), body.request_id)


def _write_take_leadership(message: TakeLeadership, body: Pb.TakeLeadership) -> None:
    body.position = message.position


def _read_take_leadership(group: str, term: Term, body: Pb.TakeLeadership, _: Buffer) -> TakeLeadership:
    return TakeLeadership(group, term, Position(body.position))


def _write_fetch(message: Fetch, body: Pb.Fetch) -> None:
    _write_point(message.previous, body.previous)
    body.last_wanted = message.last_wanted
    body.max_bytes = message.max_bytes
    body.request_id = message.request_id


def _read_fetch(group: str, term: Term, body: Pb.Fetch, _: Buffer) -> Fetch:
    previous, last_wanted = _point(body.previous), Position(body.last_wanted)
    return Fetch(group, term, previous, last_wanted, body.max_bytes, body.request_id)


def _write_fetch_response(message: FetchResponse, body: Pb.FetchResponse) -> None:
    body.result = message.result
    body.request_id = message.request_id
    _write_point(message.end, body.end)
    _write_point(message.start, body.start)
    body.voters.extend(message.voters)
    body.leads = message.leads


def _read_fetch_response(group: str, term: Term, body: Pb.FetchResponse, raw: Buffer) -> FetchResponse:
    return FetchResponse(
        group,
        term,
        _enum(FetchResult, body.result),
        body.request_id,
        frames=_consecutive(raw),
        end=_point(body.end),
        start=_point(body.start),
        voters=tuple(map(NodeId, body.voters)),
        leads=body.leads,
    )


def _write_machine_report(message: MachineReport, body: Pb.MachineReport) -> None:
    body.next_index = message.next_index
    body.version = message.version
    body.checkpoint_id = message.checkpoint_id
    body.digest = message.digest


def _read_machine_report(group: str, term: Term, body: Pb.MachineReport, _: Buffer) -> MachineReport:
    return MachineReport(group, term, body.next_index, body.version, body.checkpoint_id, body.digest)


def _write_heartbeat_batch(message: HeartbeatBatch, body: Pb.HeartbeatBatch) -> None:
    groups, terms, commit_positions, rounds = zip(*message.rows, strict=True)
    body.groups.extend(groups)
    body.terms.extend(terms)
    body.commit_positions.extend(commit_positions)
    body.rounds.extend(rounds)


def _read_heartbeat_batch(_group: str, _term: Term, body: Pb.HeartbeatBatch, _: Buffer) -> HeartbeatBatch:
    columns = (body.groups, body.terms, body.commit_positions, body.rounds)
    _check_columns(*columns)
    return HeartbeatBatch(tuple(map(Heartbeat._make, zip(*columns, strict=True))))


def _write_heartbeat_response_batch(message: HeartbeatResponseBatch, body: Pb.HeartbeatResponseBatch) -> None:
    groups, terms, rounds, keeps_leases, disk_states, wall_clocks_ms, may_votes = zip(*message.rows, strict=True)
    body.groups.extend(groups)
    body.terms.extend(terms)
    body.rounds.extend(rounds)
    body.keeps_leases.extend(keeps_leases)
    body.disk_states.extend(disk_states)
    body.wall_clocks_ms.extend(wall_clocks_ms)
    body.may_not_votes.extend(map(not_, may_votes))


def _read_heartbeat_response_batch(
    _group: str, _term: Term, body: Pb.HeartbeatResponseBatch, _: Buffer
) -> HeartbeatResponseBatch:
    columns = (
        *(body.groups, body.terms, body.rounds),
        *(body.keeps_leases, body.disk_states, body.wall_clocks_ms, body.may_not_votes),
    )
    _check_columns(*columns)
    disks = {value: _enum(DiskState, value) for value in set(body.disk_states)}
    disk_states, may_votes = map(disks.__getitem__, body.disk_states), map(not_, body.may_not_votes)
    rows = zip(*columns[:4], disk_states, body.wall_clocks_ms, may_votes, strict=True)
    return HeartbeatResponseBatch(tuple(map(HeartbeatResponse._make, rows)))


def _check_columns(groups: Sequence[str], *others: Sequence[object]) -> None:
    """Raises UNEXPECTED_ARGUMENT unless there is a row, every row has all its columns, and each names a group."""
    lengths = [len(groups), *map(len, others)]
    if not lengths[0] or len(set(lengths)) != 1:
        raise error(Code.UNEXPECTED_ARGUMENT, f"the columns of a batch of heartbeats have {lengths} rows")
    if not all(groups):
        raise error(Code.UNEXPECTED_ARGUMENT, "a row of a batch of heartbeats names no group")


def _write_point(point: LogPoint, to: Pb.Point) -> None:
    to.position, to.term, to.chain = point


def _point(point: Pb.Point) -> LogPoint:
    return LogPoint(Position(point.position), Term(point.term), point.chain)


def _enum(kind: type[E], value: int) -> E:
    try:
        return kind(value)
    except ValueError as failure:
        raise error(Code.UNEXPECTED_ARGUMENT, f"{value} is not a {kind.__name__}") from failure


_KINDS: tuple[_Kind[Any, Any], ...] = (
    _Kind(Append, "append", _write_append, _read_append, from_leader=True, payload=_frames),
    _Kind(AppendResponse, "append_response", _write_append_response, _read_append_response),
    _Kind(Heartbeat, "heartbeat", _write_heartbeat, _read_heartbeat, from_leader=True),
    _Kind(HeartbeatResponse, "heartbeat_response", _write_heartbeat_response, _read_heartbeat_response),
    _Kind(VoteRequest, "vote_request", _write_vote_request, _read_vote_request),
    _Kind(VoteResponse, "vote_response", _write_vote_response, _read_vote_response),
    _Kind(Compare, "compare", _write_compare, _read_compare, from_leader=True),
    _Kind(CompareResponse, "compare_response", _write_compare_response, _read_compare_response),
    _Kind(Truncate, "truncate", _write_truncate, _read_truncate, from_leader=True),
    _Kind(TruncateResponse, "truncate_response", _write_truncate_response, _read_truncate_response),
    _Kind(Reset, "reset", _write_reset, _read_reset, from_leader=True, payload=_log_state),
    _Kind(ResetResponse, "reset_response", _write_reset_response, _read_reset_response),
    _Kind(TakeLeadership, "take_leadership", _write_take_leadership, _read_take_leadership, from_leader=True),
    _Kind(Fetch, "fetch", _write_fetch, _read_fetch),
    _Kind(FetchResponse, "fetch_response", _write_fetch_response, _read_fetch_response, payload=_frames),
    _Kind(MachineReport, "machine_report", _write_machine_report, _read_machine_report),
    _Kind(
        HeartbeatBatch,
        "heartbeat_batch",
        _write_heartbeat_batch,
        _read_heartbeat_batch,
        from_leader=True,
        is_batch=True,
    ),
    _Kind(
        HeartbeatResponseBatch,
        "heartbeat_response_batch",
        _write_heartbeat_response_batch,
        _read_heartbeat_response_batch,
        is_batch=True,
    ),
)
_BY_CLASS = {kind.message: kind for kind in _KINDS}
_BY_FIELD: dict[str | None, _Kind[Any, Any]] = {kind.field: kind for kind in _KINDS}

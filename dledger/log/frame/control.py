"""The bodies of control frames: what of the group's words stands in the log, and how (``dledger.v1.ControlRecord``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from google.protobuf.message import DecodeError

from dledger.common.errors import Code, DLedgerError, error
from dledger.common.types import GroupSettings, LogPoint, Member, NodeId, Position, PreferredLeader, Term, TrimPoint
from dledger.log.frame.frame import ControlKind, Frame
from dledger.v1 import raft_pb2
from dledger.v1.raft_pb2 import ControlRecord, MemberRecord, TrimRecord


def no_op_body(cluster_id: str, members: Iterable[Member]) -> bytes:
    """Of the frame that opens a term."""
    return _encoded(ControlRecord(cluster_id=cluster_id, members=map(member_record, members)))


def membership_body(members: Iterable[Member]) -> bytes:
    """``members`` are all there are from now on."""
    return _encoded(ControlRecord(members=map(member_record, members)))


def producer_body(name: str) -> bytes:
    """Of the frame that hands out a producer id; ``name`` may be empty."""
    return _encoded(ControlRecord(producer_name=name)) if name else b""


def trim_body(to: TrimPoint) -> bytes:
    return _encoded(ControlRecord(trim=trim_record(to)))


def settings_body(settings: GroupSettings) -> bytes:
    return _encoded(ControlRecord(settings=settings_record(settings)))


def read_control(frame: Frame) -> ControlRecord:
    """The body of a control frame. Raises CORRUPT_LOG."""
    try:
        return ControlRecord.FromString(bytes(frame.body))
    except DecodeError as reason:
        raise error(
            Code.CORRUPT_LOG, f"the body of control frame {frame.header.position} cannot be read: {reason}"
        ) from reason


def check_control(frame: Frame) -> ControlRecord:
    """The body. Raises CORRUPT_LOG unless ``LogSnapshot.apply`` can do what the frame says: asked before it is
    written."""
    kind = frame.header.attributes
    if kind not in _KINDS:
        raise error(Code.CORRUPT_LOG, f"control frame {frame.header.position} has a kind this version does not know")
    record = read_control(frame)
    if kind == ControlKind.MEMBERSHIP:
        _check_members(frame, record)
    elif kind == ControlKind.TRIM and not 0 < record.trim.point_position < frame.header.position:
        raise _nonsense(frame, "names no frame before it as where the log begins")
    return record


_KINDS = (
    ControlKind.NO_OP,
    ControlKind.PRODUCER,
    ControlKind.MEMBERSHIP,
    ControlKind.TRIM,
    ControlKind.SETTINGS,
)


def _check_members(frame: Frame, record: ControlRecord) -> None:
    ids = [member.id for member in record.members]
    if not all(ids) or len(set(ids)) != len(ids):
        raise _nonsense(frame, "names a member twice, or one without an id")
    if not any(member.voter for member in record.members):
        raise _nonsense(frame, "leaves no voter")


def _nonsense(frame: Frame, what: str) -> DLedgerError:
    return error(Code.CORRUPT_LOG, f"control frame {frame.header.position} {what}")


def members_of(records: Iterable[MemberRecord]) -> tuple[Member, ...]:
    return tuple(
        Member(
            NodeId(each.id),
            each.peer_address,
            each.voter,
            each.node_uuid,
            each.admitted_start_count,
            each.admitted_start_nonce,
        )
        for each in records
    )


def member_record(member: Member) -> MemberRecord:
    return MemberRecord(
        id=member.id,
        peer_address=member.peer_address,
        voter=member.voter,
        node_uuid=member.node_uuid,
        admitted_start_count=member.admitted_start_count,
        admitted_start_nonce=member.admitted_start_nonce,
    )


def trim_of(record: TrimRecord) -> TrimPoint:
    point = LogPoint(Position(record.point_position), Term(record.point_term), record.point_chain)
    return TrimPoint(point, record.first_index)


def trim_record(to: TrimPoint) -> TrimRecord:
    position, term, chain = to.point
    return TrimRecord(point_position=position, point_term=term, point_chain=chain, first_index=to.first_index)


def settings_of(record: raft_pb2.GroupSettings) -> GroupSettings:
    preferred = tuple(PreferredLeader(NodeId(each.id), each.priority) for each in record.preferred)
    return GroupSettings(
        preferred, record.retention_max_age_ms, record.retention_max_bytes, record.machine, record.is_sealed
    )


def settings_record(settings: GroupSettings) -> raft_pb2.GroupSettings:
    return raft_pb2.GroupSettings(
        preferred=_preferred_records(settings.preferred),
        retention_max_age_ms=settings.retention_max_age_ms,
        retention_max_bytes=settings.retention_max_bytes,
        machine=settings.machine,
        is_sealed=settings.is_sealed,
    )


def _preferred_records(preferred: Sequence[PreferredLeader]) -> list[raft_pb2.PreferredLeader]:
    return [raft_pb2.PreferredLeader(id=each.id, priority=each.priority) for each in preferred]


def _encoded(record: ControlRecord) -> bytes:
    return record.SerializeToString(deterministic=True)

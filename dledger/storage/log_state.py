"""The log's own small state: what a node must know of a log without reading it whole.

It is a function of the frames' headers (and of control frames' bodies), in their order, and of nothing else: every node
with the same frames has the same state. It is written beside each new segment; recovery and TRUNCATE load the last one
and replay headers from there, so retention cannot lose it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence

from google.protobuf.message import DecodeError

from dledger.errors import Code, error
from dledger.storage.frame import ControlKind, Frame
from dledger.storage.producers import Producers
from dledger.storage.record import RecordKind, pack_record, unpack_record
from dledger.types import GENESIS, LogPoint, Member, NodeId, Position, Term
from dledger.v1.raft_pb2 import ControlRecord, MemberRecord
from dledger.v1.storage_pb2 import LogPointRecord, LogStateRecord, TermStart


class LogState:
    """The small state after the frame ``last``. Owned, and changed, by the log alone.

    Invariants: ``start.position`` <= ``last.position``; ``first_index`` <= ``next_index``; terms, and the positions
    they begin at, ascend.
    """

    __slots__ = (
        "_term_positions",
        "_terms",
        "cluster_id",
        "first_index",
        "group",
        "last",
        "last_timestamp_ms",
        "members",
        "next_index",
        "producers",
        "start",
    )

    def __init__(self, group: str, members: Sequence[Member] = ()) -> None:
        """The state of an empty log, with the members of the first start's configuration."""
        self.group = group
        self.cluster_id = ""
        """Minted with the first no-op; empty until then."""
        self.members = tuple(members)
        self.start: LogPoint = GENESIS
        """The point before the first frame kept."""
        self.first_index = 0
        """The index of the first record kept."""
        self.last: LogPoint = GENESIS
        self.next_index = 0
        """The index that the next record gets."""
        self.last_timestamp_ms = 0
        self.producers = Producers()
        self._term_positions = array("Q")
        self._terms = array("Q")

    @property
    def last_index(self) -> int:
        """The index of the last record; −1 when there was never one."""
        return self.next_index - 1

    def apply(self, frame: Frame) -> None:
        """Takes ``frame``, which must follow ``last``, into account. Raises CORRUPT_LOG and changes nothing when the
        body of a control frame cannot be read."""
        header = frame.header
        _, _, _, _, position, term, base_index, count, _, timestamp_ms, producer_id, _, _, _, chain = header
        last_position, last_term, _ = self.last
        assert position == last_position + 1, f"frame {position} was applied after frame {last_position}"
        assert base_index == self.next_index, f"frame {position} begins at {base_index}, not {self.next_index}"
        if not count:
            self._apply_control(frame)
        if term != last_term:
            assert term > last_term, f"frame {position} has term {term} after {last_term}"
            self._term_positions.append(position)
            self._terms.append(term)
        self.last = LogPoint._make((position, term, chain))
        self.next_index = base_index + count
        self.last_timestamp_ms = timestamp_ms
        producers = self.producers
        producers.expire(timestamp_ms)
        if count and producer_id:
            producers.record(header)

    def _apply_control(self, frame: Frame) -> None:
        header = frame.header
        kind = header.attributes
        if kind == ControlKind.NO_OP:
            record = read_control(frame)
            self.cluster_id = record.cluster_id or self.cluster_id
            self.members = tuple(map(_member, record.members)) or self.members
        elif kind == ControlKind.PRODUCER:
            self.producers.register(header.position, header.timestamp_ms)
        else:
            raise error(Code.CORRUPT_LOG, f"control frame {header.position} has a kind this version does not know")

    def term_at(self, position: int) -> Term:
        """The term of a frame between ``start.position`` and ``last.position``, both included."""
        assert self.start.position <= position <= self.last.position, f"position {position} is not in the log"
        at = bisect_right(self._term_positions, position) - 1
        return self.start.term if at < 0 else Term(self._terms[at])

    def first_position_of_term_at(self, position: int) -> Position:
        """The first position kept whose frame has the term of the one at ``position``."""
        at = bisect_right(self._term_positions, position) - 1
        return self.start.position if at < 0 else Position(self._term_positions[at])

    def copy(self) -> LogState:
        return LogState.decode(self.encode())

    def encode(self) -> bytes:
        """One checksummed record, the same on every node."""
        record = LogStateRecord(
            group=self.group,
            cluster_id=self.cluster_id,
            members=[
                MemberRecord(id=m.id, peer_address=m.peer_address, voter=m.voter, node_uuid=m.node_uuid)
                for m in self.members
            ],
            start=_point_record(self.start),
            first_index=self.first_index,
            last=_point_record(self.last),
            next_index=self.next_index,
            last_timestamp_ms=self.last_timestamp_ms,
            terms=[TermStart(position=p, term=t) for p, t in zip(self._term_positions, self._terms, strict=True)],
            producers=self.producers.encode(),
            highest_expired_producer_id=self.producers.highest_expired_id,
        )
        return pack_record(RecordKind.LOG_STATE, self.last.position, record.SerializeToString(deterministic=True))

    @classmethod
    def decode(cls, encoded: bytes) -> LogState:
        """What ``encode`` gave. Raises CORRUPT_LOG."""
        stored = unpack_record(RecordKind.LOG_STATE, encoded)
        if stored is None:
            raise error(Code.CORRUPT_LOG, "the log's small state does not match its checksum")
        record = LogStateRecord.FromString(stored.payload)
        state = cls(record.group, tuple(map(_member, record.members)))
        state.cluster_id = record.cluster_id
        state.start = _point(record.start)
        state.first_index = record.first_index
        state.last = _point(record.last)
        state.next_index = record.next_index
        state.last_timestamp_ms = record.last_timestamp_ms
        state._term_positions.extend(each.position for each in record.terms)
        state._terms.extend(each.term for each in record.terms)
        state.producers.decode(record.producers, record.highest_expired_producer_id)
        return state


def read_control(frame: Frame) -> ControlRecord:
    """The body of a control frame. Raises CORRUPT_LOG."""
    try:
        return ControlRecord.FromString(bytes(frame.body))
    except DecodeError as reason:
        raise error(
            Code.CORRUPT_LOG, f"the body of control frame {frame.header.position} cannot be read: {reason}"
        ) from reason


def check_control(frame: Frame) -> None:
    """Raises CORRUPT_LOG unless ``LogState.apply`` can read the control frame: asked before it is written."""
    if frame.header.attributes not in (ControlKind.NO_OP, ControlKind.PRODUCER):
        raise error(Code.CORRUPT_LOG, f"control frame {frame.header.position} has a kind this version does not know")
    read_control(frame)


def _member(record: MemberRecord) -> Member:
    return Member(NodeId(record.id), record.peer_address, record.voter, record.node_uuid)


def _point(record: LogPointRecord) -> LogPoint:
    return LogPoint(Position(record.position), Term(record.term), record.chain)


def _point_record(point: LogPoint) -> LogPointRecord:
    return LogPointRecord(position=point.position, term=point.term, chain=point.chain)

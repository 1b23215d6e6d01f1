"""The log's own small state: a node needs it to know a log without reading all of it.

It is a function of the frames' headers (and of control frames' bodies), in their order, and of nothing else. So every
node with the same frames has the same state. It is written beside each new segment; recovery and TRUNCATE load the last
one and replay headers from there, so retention cannot lose it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence

from google.protobuf.message import DecodeError

from dledger.common.errors import Code, DLedgerError, error, quoted
from dledger.common.types import GENESIS, GroupSettings, LogPoint, Member, NodeId, Position, Term, TrimPoint
from dledger.disk.record import Record, RecordKind, pack_record, unpack_record
from dledger.log.frame.control import (
    check_control,
    member_record,
    members_of,
    settings_of,
    settings_record,
    trim_of,
    trim_record,
)
from dledger.log.frame.frame import ControlKind, Frame
from dledger.log.frame.producers import Producers
from dledger.v1.storage_pb2 import LogPointRecord, LogStateRecord, TermStart


class LogSnapshot:
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
        "members_position",
        "next_index",
        "producers",
        "settings",
        "start",
        "trim",
        "trim_position",
    )

    def __init__(self, group: str, members: Sequence[Member] = ()) -> None:
        """The state of an empty log, with the members of the first start's configuration."""
        self.group = group
        self.cluster_id = ""
        """Minted with the first no-op; empty until then."""
        self.members = tuple(members)
        self.members_position = Position(0)
        """Of the last MEMBERSHIP frame; 0 when there was none."""
        self.settings = GroupSettings()
        self.trim: TrimPoint | None = None
        """The log begins here, or further on, once the TRIM frame at ``trim_position`` is committed: the trim that goes
        furthest. Several may be under way, and a later one may ask for less."""
        self.trim_position = Position(0)
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
    def voters(self) -> tuple[NodeId, ...]:
        return tuple(member.id for member in self.members if member.voter)

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
        if count and producer_id:
            producers.record(header)  # first: the producer that writes now has not been silent for too long
        producers.expire(timestamp_ms)

    def _apply_control(self, frame: Frame) -> None:
        header = frame.header
        kind, position = header.attributes, Position(header.position)
        record = check_control(frame)
        if kind == ControlKind.NO_OP:
            self.cluster_id = record.cluster_id or self.cluster_id
            self.members = members_of(record.members) or self.members
        elif kind == ControlKind.PRODUCER:
            self.producers.register(position, header.timestamp_ms, record.producer_name)
        elif kind == ControlKind.MEMBERSHIP:
            self.members, self.members_position = members_of(record.members), position
        elif kind == ControlKind.TRIM:
            trim = trim_of(record.trim)
            if self.trim is None or trim.point.position > self.trim.point.position:
                self.trim, self.trim_position = trim, position
        else:
            self.settings = settings_of(record.settings)

    def readdress(self, configured: Sequence[Member]) -> None:
        """While no change of the members was ever made, their addresses come from this start's configuration: a cluster
        may move as a whole. The log alone names the members; the next leader's no-op spreads the addresses."""
        if not self.members_position:
            addresses = {member.id: member.peer_address for member in configured}
            self.members = tuple(
                each._replace(peer_address=addresses.get(each.id, each.peer_address)) for each in self.members
            )

    @property
    def begin(self) -> TrimPoint:
        """Where the log begins."""
        return TrimPoint(self.start, self.first_index)

    def begin_at(self, begin: TrimPoint) -> None:
        """What lies before ``begin`` is not kept any more. Does nothing when the log begins there or later."""
        position = begin.point.position
        if position <= self.start.position:
            return
        assert position <= self.last.position, f"position {position} is not in the log"
        gone = bisect_right(self._term_positions, position)
        del self._term_positions[:gone], self._terms[:gone]
        self.start, self.first_index = begin

    def term_at(self, position: int) -> Term:
        """The term of a frame between ``start.position`` and ``last.position``, both included. Raises
        INDEX_LESS_THAN_LOCAL_BEGIN below."""
        if position < self.start.position:
            raise begins_later(f"position {position}", self)
        assert position <= self.last.position, f"position {position} is not in the log"
        at = bisect_right(self._term_positions, position) - 1
        return self.start.term if at < 0 else Term(self._terms[at])

    def first_position_of_term_at(self, position: int) -> Position:
        """The first position kept of the term that the frame at ``position`` has."""
        at = bisect_right(self._term_positions, position) - 1
        return self.start.position if at < 0 else Position(self._term_positions[at])

    def last_position_in_terms(self, position: Position, term: Term) -> Position:
        """The highest position at or below ``position`` with a term that does not exceed ``term``."""
        position = min(position, self.last.position)
        while position > self.start.position and self.term_at(position) > term:
            position = Position(self.first_position_of_term_at(position) - 1)
        return position

    def copy(self) -> LogSnapshot:
        return LogSnapshot.decode(self.encode())

    def encode(self) -> bytes:
        """One checksummed record, the same on every node with the same frames and the same start."""
        return self.encoder()()

    def encoder(self) -> Callable[[], bytes]:
        """A function that gives the present result of ``encode`` later, in any thread: with many producers encoding
        takes long."""
        record = LogStateRecord(
            group=self.group,
            cluster_id=self.cluster_id,
            members=map(member_record, self.members),
            start=_point_record(self.start),
            first_index=self.first_index,
            last=_point_record(self.last),
            next_index=self.next_index,
            last_timestamp_ms=self.last_timestamp_ms,
            terms=[TermStart(position=p, term=t) for p, t in zip(self._term_positions, self._terms, strict=True)],
            trim=trim_record(self.trim) if self.trim is not None else None,
            trim_position=self.trim_position,
            settings=settings_record(self.settings),
            members_position=self.members_position,
        )
        producers, position = self.producers.freeze(), self.last.position

        def encode() -> bytes:
            del record.producers[:]
            record.producers.extend(producers.encode())
            return pack_record(RecordKind.LOG_STATE, position, record.SerializeToString(deterministic=True))

        return encode

    @classmethod
    def decode(cls, encoded: bytes) -> LogSnapshot:
        """What ``encode`` gave. Raises CORRUPT_LOG."""
        stored = unpack_record(RecordKind.LOG_STATE, encoded)
        if stored is None:
            raise error(Code.CORRUPT_LOG, "the log's small state does not match its checksum")
        return cls.read(stored)

    @classmethod
    def read(cls, stored: Record) -> LogSnapshot:
        """Reads the state from a record with a good checksum. Raises CORRUPT_LOG."""
        try:
            return cls._of(LogStateRecord.FromString(stored.payload))
        except (DecodeError, ValueError) as reason:
            raise error(Code.CORRUPT_LOG, f"the log's small state cannot be read: {reason}") from reason

    @classmethod
    def _of(cls, record: LogStateRecord) -> LogSnapshot:
        state = cls(record.group, members_of(record.members))
        state.cluster_id = record.cluster_id
        state.members_position = Position(record.members_position)
        state.settings = settings_of(record.settings)
        state.trim = trim_of(record.trim) if record.HasField("trim") else None
        state.trim_position = Position(record.trim_position)
        state.start = _point(record.start)
        state.first_index = record.first_index
        state.last = _point(record.last)
        state.next_index = record.next_index
        state.last_timestamp_ms = record.last_timestamp_ms
        state._term_positions.extend(each.position for each in record.terms)
        state._terms.extend(each.term for each in record.terms)
        state.producers.decode(record.producers)
        return state


def read_start(group: str, encoded: bytes, last: LogPoint) -> LogSnapshot:
    """The state from another node with which a log of ``group``, ending at ``last``, is to begin anew. Raises
    CORRUPT_LOG unless it is whole, of this group, of an empty log, and lies behind ``last``."""
    state = LogSnapshot.decode(encoded)
    if state.group != group:
        raise _unfit(f"is of group {quoted(state.group)}, not {group!r}")
    if state.last != state.start or state.next_index != state.first_index:
        raise _unfit(f"is of a log with frames: from position {state.start.position} to {state.last.position}")
    if state.last.position <= last.position:
        raise _unfit(f"ends at position {state.last.position}, this log at {last.position}")
    return state


def _unfit(what: str) -> DLedgerError:
    return error(Code.CORRUPT_LOG, f"the small state to begin from {what}; nothing was changed")


def begins_later(what: str, state: LogSnapshot) -> DLedgerError:
    """INDEX_LESS_THAN_LOCAL_BEGIN: ``what`` was asked for."""
    return error(
        Code.INDEX_LESS_THAN_LOCAL_BEGIN,
        f"{what} lies before the log's start: it begins at record {state.first_index}, behind position "
        f"{state.start.position}",
        first_index=state.first_index,
    )


def _point(record: LogPointRecord) -> LogPoint:
    return LogPoint(Position(record.position), Term(record.term), record.chain)


def _point_record(point: LogPoint) -> LogPointRecord:
    return LogPointRecord(position=point.position, term=point.term, chain=point.chain)

"""Messages to send: one of every kind, any of every kind, and frames that follow one another."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

from hypothesis import strategies as st

from dledger.common.batch import build_body, crc32c
from dledger.common.types import GENESIS, DiskState, LogPoint, NodeId, Position, Term
from dledger.disk.record import RecordKind, pack_record
from dledger.log.frame.frame import Frame, make_frame
from dledger.raft.messages import (
    Append,
    FetchResponse,
    Heartbeat,
    HeartbeatBatch,
    HeartbeatResponseBatch,
    PeerMessage,
    Reset,
)

MESSAGE_TYPES: tuple[type[PeerMessage], ...] = get_args(PeerMessage)

u64 = st.integers(0, 2**64 - 1)
group = st.text(min_size=1, max_size=20)


def frames_of(*bodies: list[bytes], after: LogPoint = GENESIS, term: int = 1) -> tuple[Frame, ...]:
    """One frame a body, in a chain."""
    frames: list[Frame] = []
    for records in bodies:
        body = build_body(records)
        frame = make_frame(
            after,
            term=term,
            base_index=0,
            count=len(records),
            body=body,
            body_crc=crc32c(body),
            timestamp_ms=1,
        )
        frames.append(frame)
        after = frame.header.point
    return tuple(frames)


def append(*bodies: list[bytes], term: int = 1) -> Append:
    return Append("default", Term(term), Position(0), frames_of(*bodies, term=term))


def reset(payload: bytes = b"") -> Reset:
    return Reset("default", Term(1), pack_record(RecordKind.LOG_STATE, 1, payload), 1)


def heartbeat(round_: int = 0) -> Heartbeat:
    return Heartbeat("default", Term(1), Position(0), round_)


@st.composite
def _frames(draw: st.DrawFn) -> tuple[Frame, ...]:
    bodies = draw(st.lists(st.lists(st.binary(max_size=50), min_size=1, max_size=5), max_size=4))
    start = LogPoint(Position(draw(st.integers(0, 2**63))), Term(1), draw(u64))
    return frames_of(*bodies, after=start)


st.register_type_strategy(Term, u64)
st.register_type_strategy(Position, u64)
st.register_type_strategy(NodeId, st.text(max_size=20))
st.register_type_strategy(LogPoint, st.builds(LogPoint, u64, u64, u64))


def messages() -> st.SearchStrategy[PeerMessage]:
    """Any message of any kind."""
    told: Any = {
        "round": u64,
        "request_id": u64,
        "max_bytes": st.integers(0, 2**32 - 1),
        "wall_clock_ms": u64,
        "disk": st.sampled_from(DiskState),
        "keeps_lease": st.booleans(),
        "admits_loss": st.booleans(),
        "next_index": u64,
        "version": u64,
        "checkpoint_id": u64,
    }

    def build(kind: type[PeerMessage]) -> st.SearchStrategy[PeerMessage]:
        if kind in (HeartbeatBatch, HeartbeatResponseBatch):
            row = get_args(get_type_hints(kind)["rows"])[0]
            rows: st.SearchStrategy[Any] = st.lists(build(row), min_size=1, max_size=5).map(tuple)
            return st.builds(kind, rows=rows)
        fields = {name: strategy for name, strategy in told.items() if name in kind.__annotations__}
        if kind in (Append, FetchResponse):
            fields["frames"] = _frames()
        if kind is Reset:
            fields["log_state"] = st.binary(max_size=50).map(
                lambda payload: pack_record(RecordKind.LOG_STATE, 1, payload)
            )
        return st.builds(kind, group=group, **fields)

    return st.one_of(*map(build, MESSAGE_TYPES))

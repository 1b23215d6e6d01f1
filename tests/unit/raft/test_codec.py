from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest
from hypothesis import given

from dledger.common.errors import Code, DLedgerError
from dledger.common.types import NodeId, Position, Term
from dledger.log.frame.producers import MAX_ANONYMOUS, MAX_NAMED, RANGES_KEPT
from dledger.raft import codec
from dledger.raft.messages import (
    Append,
    FetchResponse,
    Heartbeat,
    HeartbeatBatch,
    HeartbeatResponse,
    HeartbeatResponseBatch,
    PeerMessage,
)
from dledger.transport.framing import pack
from dledger.transport.peer import MAX_MESSAGE_BYTES
from dledger.v1 import raft_pb2 as pb
from dledger.v1.storage_pb2 import LogStateRecord, ProducerRecord, TermStart
from tests.unit.transport.messages import MESSAGE_TYPES, append, frames_of, heartbeat, messages, reset

SENDER = NodeId("n1")


def decode(header: bytes, body: bytes = b"", *, cluster_id: str = "c") -> PeerMessage:
    return codec.decode(header, body, cluster_id=cluster_id, sender=SENDER)


def refusal(header: pb.PeerMessage, body: bytes = b"") -> DLedgerError:
    with pytest.raises(DLedgerError) as caught:
        decode(header.SerializeToString(), body)
    assert "\n" not in str(caught.value)
    return caught.value


def names_of(message: PeerMessage) -> Sequence[str]:
    """Of its fields."""
    if isinstance(message, Heartbeat | HeartbeatResponse):
        return message._fields
    return [field.name for field in dataclasses.fields(message)]


def comparable(message: PeerMessage) -> tuple[object, ...]:
    """Frames compare by their stored bytes."""
    fields = {name: getattr(message, name) for name in names_of(message)}
    if isinstance(message, Append | FetchResponse):
        fields["frames"] = [(frame.header, frame.raw) for frame in message.frames]
    return type(message), fields


@given(messages())
def test_every_message_comes_back_as_it_was_sent(message: PeerMessage) -> None:
    encoded = codec.encode(message, cluster_id="c", sender=SENDER)
    assert comparable(decode(encoded.header, b"".join(encoded.body))) == comparable(message)


def test_every_kind_of_message_has_a_body_on_the_wire_and_a_row_in_the_table() -> None:
    bodies = {field.name for field in pb.PeerMessage.DESCRIPTOR.oneofs_by_name["body"].fields}
    assert {kind.field for kind in codec._KINDS} == bodies
    assert len(MESSAGE_TYPES) == len(codec._BY_CLASS) == len(codec._BY_FIELD) == len(bodies)


def test_frames_are_sent_and_received_without_a_copy() -> None:
    message = append([b"one"], [b"two", b"three"])
    encoded = codec.encode(message, cluster_id="c", sender=SENDER)
    sent = [buffer for frame in message.frames for buffer in frame.buffers]
    assert all(on_wire is buffer for on_wire, buffer in zip(encoded.body, sent, strict=True))
    body = b"".join(encoded.body)
    received = decode(encoded.header, body)
    assert isinstance(received, Append)
    assert all(memoryview(frame.body).obj is body for frame in received.frames)


def header(kind: str = "append_response", *, leader_id: str = "", **fields: object) -> pb.PeerMessage:
    """A message of one kind, with these fields in its body; no kind: one without a body."""
    outer = pb.PeerMessage(group="default", cluster_id="c", leader_id=leader_id)
    if kind:
        body = getattr(outer, kind)
        body.MergeFrom(type(body)(**fields))
    return outer


def with_outer(**fields: object) -> pb.PeerMessage:
    outer = header()
    outer.MergeFrom(pb.PeerMessage(**fields))  # type: ignore[arg-type]
    return outer


NO_GROUP = header()
NO_GROUP.group = ""
OF_A_LATER_VERSION = pb.PeerMessage.FromString(header("").SerializeToString() + bytes.fromhex("9a0600"))
"""Its body is field 99."""


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (header(""), "unknown kind"),
        (OF_A_LATER_VERSION, "unknown kind"),
        (NO_GROUP, "no group"),
        (header(result=77), "77 is not a PushResult"),
        (header("compare_response", result=6), "6 is not a PushResult"),
        (header("vote_response", result=99), "99 is not a VoteResult"),
    ],
)
def test_a_field_out_of_its_range_is_refused(wrong: pb.PeerMessage, what: str) -> None:
    failure = refusal(wrong)
    assert failure.code is Code.UNEXPECTED_ARGUMENT
    assert what in str(failure)


BATCH = HeartbeatBatch((heartbeat(1), Heartbeat("other", Term(2), Position(0), 0)))


@pytest.mark.parametrize(
    "batch",
    [BATCH, HeartbeatResponseBatch((HeartbeatResponse("a", Term(1), 1), HeartbeatResponse("b", Term(2), 0)))],
)
def test_a_batch_whose_columns_are_not_equally_long_is_refused(batch: HeartbeatBatch | HeartbeatResponseBatch) -> None:
    encoded = codec.encode(batch, cluster_id="c", sender=SENDER)
    name = pb.PeerMessage.FromString(encoded.header).WhichOneof("body")
    assert name is not None
    columns = [field.name for field in getattr(pb.PeerMessage(), name).DESCRIPTOR.fields]
    assert len(columns) == len(names_of(batch.rows[0]))
    for column in columns:
        ragged = pb.PeerMessage.FromString(encoded.header)
        getattr(getattr(ragged, name), column).pop()
        failure = refusal(ragged)
        assert failure.code is Code.UNEXPECTED_ARGUMENT
        assert "columns" in str(failure)


def test_a_batch_without_a_row_or_with_a_row_without_a_group_is_refused() -> None:
    assert refusal(header("heartbeat_batch", leader_id=SENDER)).code is Code.UNEXPECTED_ARGUMENT
    outer = header("heartbeat_batch", leader_id=SENDER, groups=["a", ""], terms=[1, 1], commit_positions=[0, 0])
    outer.heartbeat_batch.rounds.extend([0, 0])
    failure = refusal(outer)
    assert failure.code is Code.UNEXPECTED_ARGUMENT
    assert "names no group" in str(failure)


def test_bytes_that_are_no_protobuf_are_refused() -> None:
    with pytest.raises(DLedgerError) as caught:
        decode(b"\xff\xff\xff")
    assert caught.value.code is Code.UNEXPECTED_ARGUMENT


def test_frames_behind_any_other_message_are_refused() -> None:
    assert refusal(header(), frames_of([b"x"])[0].raw).code is Code.UNEXPECTED_ARGUMENT


@pytest.mark.parametrize(
    "kind", ["append", "heartbeat", "compare", "truncate", "take_leadership", "reset", "heartbeat_batch"]
)
def test_only_the_leader_speaks_as_leader(kind: str) -> None:
    assert refusal(header(kind, leader_id="n2")).code is Code.UNEXPECTED_MEMBER


def test_a_message_of_another_cluster_is_refused() -> None:
    assert refusal(with_outer(cluster_id="other")).code is Code.UNKNOWN_CLUSTER


@pytest.mark.parametrize(("theirs", "mine"), [("", "c"), ("c", ""), ("", "")])
def test_a_cluster_id_not_known_yet_fits_every_cluster(theirs: str, mine: str) -> None:
    encoded = codec.encode(heartbeat(), cluster_id=theirs, sender=SENDER)
    assert decode(encoded.header, cluster_id=mine) == heartbeat()


@pytest.mark.parametrize("offset", [0, 8, 20, 60, 84, 92, 103])
def test_a_frame_with_a_flipped_bit_is_refused(offset: int) -> None:
    raw = bytearray(frames_of([b"12345678"])[0].raw)
    raw[offset] ^= 1
    assert refusal(header("append", leader_id=SENDER), bytes(raw)).code is Code.CORRUPT_LOG


@pytest.mark.parametrize("offset", [0, 4, 12, 22, 30])
def test_a_small_state_with_a_flipped_bit_is_refused(offset: int) -> None:
    raw = bytearray(reset(b"12345678").log_state)
    raw[offset] ^= 1
    assert refusal(header("reset", leader_id=SENDER), bytes(raw)).code is Code.CORRUPT_LOG


def test_the_small_state_of_all_the_producers_a_log_remembers_fits_a_message() -> None:
    most = ProducerRecord(
        id=2**63, epoch=2**31, next_sequence=2**63, last_timestamp_ms=2**48, ranges=bytes(RANGES_KEPT * 7 * 8)
    )
    named = ProducerRecord(name="n" * 255)
    named.MergeFrom(most)
    terms = [TermStart(position=2**63, term=2**63)] * 100_000
    state = LogStateRecord(producers=[most] * MAX_ANONYMOUS + [named] * MAX_NAMED, terms=terms)
    message = reset(state.SerializeToString())
    encoded = codec.encode(message, cluster_id="c", sender=SENDER)
    assert sum(map(len, pack(encoded.header, encoded.body))) < MAX_MESSAGE_BYTES
    assert decode(encoded.header, b"".join(encoded.body)) == message


def test_half_a_frame_is_refused() -> None:
    raw = frames_of([b"12345678"])[0].raw
    assert refusal(header("append", leader_id=SENDER), raw[:-8]).code is Code.CORRUPT_LOG


def test_frames_with_a_gap_are_refused() -> None:
    first, _, third = frames_of([b"1"], [b"2"], [b"3"])
    failure = refusal(header("append", leader_id=SENDER), first.raw + third.raw)
    assert failure.code is Code.UNEXPECTED_ARGUMENT
    assert "1, 3" in str(failure)

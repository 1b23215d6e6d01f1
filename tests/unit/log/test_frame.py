"""The frame: what is written is what is read, no damaged byte passes, and no frame stands in another's place."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dledger.common.batch import build_body, crc32c
from dledger.common.errors import Code, CorruptLog, DLedgerError
from dledger.common.types import GENESIS, LogPoint, Position, Term
from dledger.log.frame.frame import (
    HEADER_BYTES,
    Frame,
    chain_of,
    check_frame_body,
    check_link,
    make_frame,
    parse_frame,
    parse_frames,
    parse_header,
)
from tests.unit.log.harness import control_frame, data_frame

u32 = st.integers(0, (1 << 32) - 1)
u64 = st.integers(0, (1 << 64) - 1)
points = st.builds(LogPoint, st.integers(0, (1 << 64) - 2), u64, u64)


@st.composite
def frames(draw: st.DrawFn) -> tuple[LogPoint, Frame]:
    """A frame with anything that its fields can hold, and the point before it."""
    previous = draw(points)
    body = draw(st.binary(max_size=100))
    frame = make_frame(
        previous,
        term=draw(u64),
        base_index=draw(u64),
        count=draw(u32),
        body=body,
        body_crc=crc32c(body),
        timestamp_ms=draw(u64),
        attributes=draw(st.integers(0, 255)),
        producer_id=draw(u64),
        producer_epoch=draw(u32),
        base_sequence=draw(u64),
    )
    return previous, frame


@given(frames())
def test_what_is_read_is_what_was_written(made: tuple[LogPoint, Frame]) -> None:
    previous, frame = made
    again = parse_frame(frame.raw)
    assert again.header == frame.header
    assert (bytes(again.body), again.raw) == (frame.body, frame.raw)
    assert again.header.position == previous.position + 1


@given(frames())
def test_a_frame_takes_a_multiple_of_eight_bytes(made: tuple[LogPoint, Frame]) -> None:
    _, frame = made
    assert len(frame.raw) == frame.header.stored_bytes == -(-frame.header.frame_len // 8) * 8


@given(frames())
def test_a_frame_links_to_the_point_it_was_made_behind(made: tuple[LogPoint, Frame]) -> None:
    previous, frame = made
    assert frame.header.chain == chain_of(previous.chain, frame.raw)


@given(frames(), st.integers(0, 7))
@settings(max_examples=50)
def test_every_damaged_byte_is_found(made: tuple[LogPoint, Frame], bit: int) -> None:
    raw = bytearray(made[1].raw)
    for at in range(len(raw)):
        raw[at] ^= 1 << bit
        with pytest.raises(CorruptLog):
            parse_frame(raw)
        raw[at] ^= 1 << bit


@given(frames(), st.data())
def test_a_frame_that_is_cut_short_is_refused(made: tuple[LogPoint, Frame], data: st.DataObject) -> None:
    raw = made[1].raw
    with pytest.raises(CorruptLog):
        parse_frame(raw[: data.draw(st.integers(0, len(raw) - 1))])


@given(st.binary(max_size=300))
def test_noise_is_no_frame(noise: bytes) -> None:
    with pytest.raises(CorruptLog):
        parse_frame(noise)


@given(st.lists(frames(), max_size=5))
def test_frames_one_behind_the_other_are_told_apart(made: list[tuple[LogPoint, Frame]]) -> None:
    raw = b"".join(frame.raw for _, frame in made)
    assert [frame.raw for frame in parse_frames(raw)] == [frame.raw for _, frame in made]
    if made:
        with pytest.raises(CorruptLog):
            parse_frames(raw + b"\0" * 8)


def resealed(frame: Frame, at: int, value: bytes) -> bytes:
    """The frame with other bytes in its header, and the checksum that fits them."""
    head = bytearray(frame.raw[:HEADER_BYTES])
    head[at : at + len(value)] = value
    head[8:12] = crc32c(head[12:], crc32c(head[:8])).to_bytes(4, "little")
    return bytes(head) + frame.raw[HEADER_BYTES:]


@pytest.mark.parametrize(
    ("at", "value"),
    [
        pytest.param(3, b"\x00", id="no version"),
        pytest.param(4, (HEADER_BYTES - 1).to_bytes(4, "little"), id="shorter than its header"),
        pytest.param(45, b"\x01", id="a codec"),
        pytest.param(46, b"\x01", id="an unknown attribute"),
        pytest.param(76, b"\x01", id="reserved"),
    ],
)
def test_what_this_version_does_not_know_is_refused_under_a_good_checksum(at: int, value: bytes) -> None:
    with pytest.raises(CorruptLog):
        parse_header(resealed(data_frame(GENESIS, 0), at, value))


def test_a_frame_that_follows_is_accepted() -> None:
    first = data_frame(GENESIS, 0)
    second = data_frame(first.header.point, first.header.end_index, term=5)
    check_link(first.header.point, first.header.end_index, second.header, second.raw)


PREVIOUS = LogPoint(Position(7), Term(3), 77)


@pytest.mark.parametrize(
    ("previous", "next_index"),
    [
        pytest.param(PREVIOUS._replace(position=Position(6)), 40, id="a position is missing"),
        pytest.param(PREVIOUS._replace(position=Position(8)), 40, id="a position comes twice"),
        pytest.param(PREVIOUS, 39, id="a record is missing"),
        pytest.param(PREVIOUS, 41, id="a record comes twice"),
        pytest.param(PREVIOUS._replace(term=Term(4)), 40, id="the term falls"),
        pytest.param(PREVIOUS._replace(chain=78), 40, id="another frame was before it"),
    ],
)
def test_a_frame_that_does_not_follow_is_refused(previous: LogPoint, next_index: int) -> None:
    frame = data_frame(PREVIOUS, 40, term=3)
    check_link(PREVIOUS, 40, frame.header, frame.raw)
    with pytest.raises(CorruptLog):
        check_link(previous, next_index, frame.header, frame.raw)


def test_the_chain_covers_the_body() -> None:
    one, other = data_frame(GENESIS, 0, [b"a"]), data_frame(GENESIS, 0, [b"b"])
    assert one.header.chain != other.header.chain


def test_offsets_that_do_not_fit_the_count_are_a_corrupt_batch() -> None:
    frame = data_frame(GENESIS, 0, [b"a", b"b"])
    check_frame_body(frame, max_record_bytes=1)
    body = build_body([b"a", b"b", b"c"])
    wrong = make_frame(GENESIS, term=1, base_index=0, count=2, body=body, body_crc=crc32c(body), timestamp_ms=1)
    with pytest.raises(DLedgerError) as refused:
        check_frame_body(wrong, max_record_bytes=1)
    assert refused.value.code is Code.CORRUPT_BATCH


def test_a_record_above_the_limit_is_refused() -> None:
    with pytest.raises(DLedgerError):
        check_frame_body(data_frame(GENESIS, 0, [b"abc"]), max_record_bytes=2)


def test_a_control_frame_has_no_offsets_to_check() -> None:
    check_frame_body(control_frame(GENESIS, 0, 1, b"\xff"), max_record_bytes=0)

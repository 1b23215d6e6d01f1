"""Frames out of bytes, and header blocks out of frames: whole ones, in order, however they arrive."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.common.http2_frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    ConnectionFault,
    ErrorCode,
    frame,
)
from dledger.rpc.http2.blocks import HeaderBlocks
from dledger.rpc.http2.framing import FrameReader
from dledger.rpc.http2.limits import Http2Limits

Frame = tuple[int, int, int, bytes]


def reader(*, awaits_preface: bool = False) -> tuple[FrameReader, list[Frame]]:
    """With the frames that it hands over."""
    found: list[Frame] = []
    return FrameReader(100, lambda *one: found.append(one), awaits_preface=awaits_preface), found


@given(st.lists(st.binary(max_size=100), max_size=5), st.lists(st.integers(0, 600), max_size=8))
def test_frames_are_handed_over_whole_however_they_arrive(payloads: list[bytes], cuts: list[int]) -> None:
    data = PREFACE + b"".join(frame(DATA, END_STREAM, 3, payload) for payload in payloads)
    frames, found = reader(awaits_preface=True)
    at = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for begin, end in itertools.pairwise(at):
        frames.take(data[begin:end], 0.0)
    assert found == [(DATA, 3, END_STREAM, payload) for payload in payloads]
    assert (frames.unfinished_bytes, frames.began_s) == (0, None)


def test_an_unfinished_frame_is_as_old_as_its_first_bytes() -> None:
    frames, found = reader()
    whole = frame(DATA, 0, 1, b"payload")
    frames.take(whole + whole[:3], 1.0)
    frames.take(whole[3:12], 2.0)
    assert (len(found), frames.unfinished_bytes, frames.began_s) == (1, 12, 1.0)
    frames.take(whole[12:] + whole[:1], 3.0)
    assert (len(found), frames.unfinished_bytes, frames.began_s) == (2, 1, 3.0)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"GET / HTTP/1.1", ErrorCode.PROTOCOL_ERROR),
        (PREFACE + frame(DATA, 0, 1, bytes(101)), ErrorCode.FRAME_SIZE_ERROR),
    ],
)
def test_other_bytes_are_a_fault(data: bytes, code: ErrorCode) -> None:
    frames, _ = reader(awaits_preface=True)
    with pytest.raises(ConnectionFault) as fault:
        frames.take(data, 0.0)
    assert fault.value.code is code


def test_a_block_is_put_together_of_its_frames() -> None:
    blocks = HeaderBlocks(Http2Limits())
    assert blocks.begin(1, END_HEADERS, b"whole", 1.0) == b"whole"
    assert blocks.begin(3, END_STREAM, b"be", 2.0) is None
    assert blocks.go_on(0, b"gi") is None
    assert (blocks.unfinished_bytes, blocks.open and blocks.open.began_s) == (4, 2.0)
    ended = blocks.go_on(END_HEADERS, b"n")
    assert ended is not None
    assert (b"".join(ended.parts), ended.stream_id, ended.is_end) == (b"begin", 3, True)
    assert (blocks.unfinished_bytes, blocks.open) == (0, None)


@pytest.mark.parametrize(("kind", "stream_id"), [(DATA, 1), (HEADERS, 1), (CONTINUATION, 3)])
def test_nothing_comes_between_the_frames_of_a_block(kind: int, stream_id: int) -> None:
    blocks = HeaderBlocks(Http2Limits())
    blocks.check_turn(kind, stream_id)
    blocks.begin(1, 0, b"begin", 1.0)
    blocks.check_turn(CONTINUATION, 1)
    with pytest.raises(ConnectionFault, match="a header block was not ended"):
        blocks.check_turn(kind, stream_id)


def test_a_block_of_too_many_frames_or_bytes_is_a_fault() -> None:
    for limits in (Http2Limits(max_header_frames=2), Http2Limits(max_header_block_bytes=20)):
        blocks = HeaderBlocks(limits)
        blocks.begin(1, 0, bytes(9), 1.0)
        blocks.go_on(0, bytes(9))
        with pytest.raises(ConnectionFault, match="too many frames or bytes"):
            blocks.go_on(END_HEADERS, bytes(9))

from __future__ import annotations

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dledger.common.batch import crc32c
from dledger.common.errors import Code, DLedgerError
from dledger.transport.framing import MAX_HEADER_BYTES, MAX_HELLO_BYTES, MessageReader, pack

LIMIT = 1 << 20

parts = st.lists(st.tuples(st.binary(max_size=100), st.lists(st.binary(max_size=300), max_size=3)), max_size=8)


def stream_of(messages: list[tuple[bytes, list[bytes]]]) -> bytes:
    return b"".join(b"".join(pack(header, frames)) for header, frames in messages)


def read(reader: MessageReader, *pieces: bytes) -> list[tuple[bytes, bytes]]:
    return [(bytes(raw.header), bytes(raw.body)) for piece in pieces for raw in reader.feed(piece)]


@given(parts, st.lists(st.integers(0, 2_000), max_size=20))
def test_messages_come_out_as_they_went_in_wherever_the_stream_is_cut(
    messages: list[tuple[bytes, list[bytes]]], cuts: list[int]
) -> None:
    stream = stream_of(messages)
    bounds = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    pieces = [stream[start:end] for start, end in itertools.pairwise(bounds)]
    reader = MessageReader(LIMIT)
    assert read(reader, *pieces) == [(header, b"".join(frames)) for header, frames in messages]
    assert reader.buffered_bytes == 0


def test_messages_come_out_byte_by_byte() -> None:
    stream = stream_of([(b"one", [b"x" * 40]), (b"two", [])])
    pieces = [stream[i : i + 1] for i in range(len(stream))]
    assert read(MessageReader(LIMIT), *pieces) == [(b"one", b"x" * 40), (b"two", b"")]


def test_whole_messages_share_the_memory_of_what_was_received() -> None:
    data = stream_of([(b"one", [b"frames"]), (b"two", [b"more"])])
    for raw in MessageReader(LIMIT).feed(data):
        assert raw.header.obj is data
        assert raw.body.obj is data


def test_frames_are_packed_without_a_copy() -> None:
    frames = [b"a" * 1000, b"b" * 1000]
    assert all(packed is frame for packed, frame in zip(pack(b"h", frames)[1:], frames, strict=True))


def tampered(total_len: int, header_len: int, header: bytes = b"") -> bytes:
    return struct.pack("<III", total_len, header_len, crc32c(header)) + header


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        bytes.fromhex("1603010200010001fc0303"),  # TLS ClientHello
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x00" * 64,
        b"\xff" * 64,
        tampered(LIMIT + 1, 4),
        tampered(11, 0),
        tampered(100, 89),
        tampered(2 * MAX_HEADER_BYTES, MAX_HEADER_BYTES + 1),
    ],
)
@pytest.mark.parametrize("piece_bytes", [1, 5, 1000])
def test_garbage_is_refused_at_its_first_twelve_bytes(garbage: bytes, piece_bytes: int) -> None:
    reader = MessageReader(LIMIT)
    garbage = garbage.ljust(12, b"\0")
    pieces = [garbage[i : i + piece_bytes] for i in range(0, len(garbage), piece_bytes)]
    with pytest.raises(DLedgerError) as caught:
        read(reader, *pieces)
    assert caught.value.code is Code.UNEXPECTED_ARGUMENT
    assert reader.buffered_bytes <= 12


def test_a_header_with_a_flipped_bit_is_refused() -> None:
    stream = bytearray(stream_of([(b"header", [])]))
    stream[-1] ^= 1
    with pytest.raises(DLedgerError, match="checksum"):
        read(MessageReader(LIMIT), bytes(stream))


def test_messages_before_the_garbage_are_delivered() -> None:
    seen: list[bytes] = []
    with pytest.raises(DLedgerError):
        seen.extend(bytes(raw.header) for raw in MessageReader(LIMIT).feed(stream_of([(b"good", [])]) + b"\xff" * 12))
    assert seen == [b"good"]


def test_what_is_kept_grows_with_what_came_and_not_with_what_was_promised() -> None:
    reader = MessageReader(LIMIT)
    read(reader, tampered(LIMIT, 4) + b"abcd")
    assert reader.buffered_bytes == 16


def test_before_the_hello_nothing_larger_than_a_hello_is_kept() -> None:
    with pytest.raises(DLedgerError):
        read(MessageReader(MAX_HELLO_BYTES), tampered(MAX_HELLO_BYTES + 1, 4))

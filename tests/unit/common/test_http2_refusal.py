"""The bytes of a refusal: whatever the pieces in which a call comes, it is answered once."""

from __future__ import annotations

import pytest

from dledger.common.http2_refusal import HTTP2_BEGINNING, Http2Refusal

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def test_bytes_may_come_in_any_pieces() -> None:
    settings, headers = bytes.fromhex("000000040000000000"), bytes.fromhex("000001010500000003") + b"\x82"
    whole = PREFACE + settings + headers
    at_once = Http2Refusal("no").feed(whole)
    refusal = Http2Refusal("no")
    assert b"".join(refusal.feed(whole[at : at + 1]) for at in range(len(whole))) == at_once
    assert at_once.count(b"grpc-status") == 1


def test_a_frame_too_large_to_be_a_call_ends_it() -> None:
    refusal = Http2Refusal("no")
    assert PREFACE.startswith(HTTP2_BEGINNING)
    refusal.feed(PREFACE)
    with pytest.raises(ValueError, match="16777224 bytes"):
        refusal.feed(b"\xff\xff\xff\x00\x00\x00\x00\x00\x01")

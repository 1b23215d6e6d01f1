"""The settings by which each side of a connection tells the other its limits (RFC 9113, 6.5)."""

from __future__ import annotations

from dledger.common.http2_frames import (
    DEFAULT_FRAME_BYTES,
    ENABLE_PUSH,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME_BYTES,
    MAX_FRAME_SIZE,
    MAX_HEADER_LIST_SIZE,
    MAX_WINDOW_BYTES,
    ConnectionFault,
    ErrorCode,
    settings_of,
)
from dledger.rpc.http2.limits import Http2Limits

MAX_SETTINGS_A_FRAME = 64


def own_settings(limits: Http2Limits, *, is_server: bool) -> dict[int, int]:
    """This side's."""
    values = {
        INITIAL_WINDOW_SIZE: limits.stream_window_bytes,
        MAX_FRAME_SIZE: limits.max_frame_bytes,
        MAX_HEADER_LIST_SIZE: limits.max_header_block_bytes,
    }
    return values | ({MAX_CONCURRENT_STREAMS: limits.max_streams} if is_server else {ENABLE_PUSH: 0})


def peer_settings(payload: bytes, *, from_server: bool) -> dict[int, int]:
    """Those in a SETTINGS frame, whose length was checked; of two for one thing the last counts. Raises
    ConnectionFault."""
    settings = settings_of(payload)
    if len(settings) > MAX_SETTINGS_A_FRAME:
        raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, f"{len(settings)} settings in one frame")
    for key, value in settings:
        _check(key, value, from_server=from_server)
    return dict(settings)


def _check(key: int, value: int, *, from_server: bool) -> None:
    if key == INITIAL_WINDOW_SIZE and value > MAX_WINDOW_BYTES:
        raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "an initial window that is too large")
    if key == MAX_FRAME_SIZE and not DEFAULT_FRAME_BYTES <= value <= MAX_FRAME_BYTES:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"frames of {value} bytes are not allowed")
    if key == ENABLE_PUSH and (value > 1 or (value and from_server)):
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH is 0 or 1, and 0 from a server")

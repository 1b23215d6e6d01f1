"""What one side of an HTTP/2 connection allows the other."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024


@dataclass(frozen=True, slots=True)
class Http2Limits:
    max_streams: int = 1_024
    """At a time; a further one is refused. Of a client's side: none, as servers open no streams."""
    stream_window_bytes: int = 1024 * KIB
    """So much may be on its way on one stream before the receiver has consumed any of it."""
    connection_window_bytes: int = 16 * 1024 * KIB
    max_frame_bytes: int = 256 * KIB
    max_header_block_bytes: int = 64 * KIB
    max_header_frames: int = 64
    max_remembered_resets: int = 1_024
    """Streams reset by this side: later frames on them are passed over."""

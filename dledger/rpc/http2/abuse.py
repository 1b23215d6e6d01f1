"""What a peer may cost a connection without doing anything useful.

Each frame that is no step of a call (a reset, a PING, SETTINGS, an empty DATA frame, a tiny window update) takes a
token. Tokens come back with time, and with each message that the peer is sent. A peer without tokens is told to calm
down, and the connection ends. These are the floods of CVE-2019-9512 to 9518 and CVE-2023-44487 ("rapid reset").
"""

from __future__ import annotations

from dledger.common.http2_frames import ConnectionFault, ErrorCode

BURST = 4_000.0
"""As many at once: a client may give up all calls of a busy connection."""
REFILL_A_SECOND = 500.0
EARNED_BY_A_MESSAGE = 4.0
"""gRPC's own libraries answer a message, however small, with window updates of the stream and of the connection, and
with a PING to measure the way."""


class Patience:
    """Of one connection."""

    __slots__ = ("_seen_s", "left")

    def __init__(self, now_s: float) -> None:
        self.left = BURST
        """Tokens; those beyond ``BURST`` go with the next spending."""
        self._seen_s = now_s

    def spend(self, now_s: float, what: str) -> None:
        """Raises ConnectionFault when there were too many of them."""
        self.left = min(BURST, self.left + (now_s - self._seen_s) * REFILL_A_SECOND) - 1
        self._seen_s = now_s
        if self.left < 0:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, f"too many frames that ask for nothing: {what}")

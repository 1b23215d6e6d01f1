"""What a peer may cost a connection without doing anything useful.

Each frame that is no step of a call (a reset, a PING, SETTINGS, an empty DATA frame, a tiny window update) takes a
token. Tokens come back with time. A peer without tokens is told to calm down, and the connection ends. These are the
floods of CVE-2019-9512 to 9518 and CVE-2023-44487 ("rapid reset").
"""

from __future__ import annotations

from dledger.rpc.http2.frames import ConnectionFault, ErrorCode

BURST = 4_000.0
"""As many at once: a client may give up all calls of a busy connection."""
REFILL_A_SECOND = 500.0


class Patience:
    """Of one connection."""

    __slots__ = ("_left", "_seen_s")

    def __init__(self, now_s: float) -> None:
        self._left = BURST
        self._seen_s = now_s

    def spend(self, now_s: float, what: str) -> None:
        """Raises ConnectionFault when there were too many of them."""
        self._left = min(BURST, self._left + (now_s - self._seen_s) * REFILL_A_SECOND) - 1
        self._seen_s = now_s
        if self._left < 0:
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, f"too many frames that ask for nothing: {what}")
